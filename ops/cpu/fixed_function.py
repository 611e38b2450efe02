"""Functions whose text is fixed, for what the host does in loops: compiled once per process, in about 50 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brickrt.ops.cpu.isa import Isa

if TYPE_CHECKING:
    from brickrt.ops.cpu.compile import LoadedObjects

_HOST = Isa(1, 16)  # LLVM finds the processor's name and features
_KEPT: list[LoadedObjects] = []  # the owners of the functions' code


def fixed_function(text: str, name: str, *args: type, ret: type) -> Callable[..., int] | None:
    """The function `name` of a module in LLVM's text, with these ctypes types; None where LLVM is not installed, as on
    machines whose GPU does without."""
    try:
        from brickrt.ops.cpu.compile import LoadedObjects, to_object
    except ModuleNotFoundError:
        return None
    library = LoadedObjects(_HOST)
    library.add(to_object(text, _HOST))
    _KEPT.append(library)
    return library.function(name, *args, ret=ret)
