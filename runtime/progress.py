"""How long steps tell how far they are."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # (what, done, of how many)
KernelProgress = Callable[[int, int], None]  # (kernels compiled, to compile)
