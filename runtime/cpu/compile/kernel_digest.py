"""Names of compiled code in the disk cache: digests of everything that decides it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import llvmlite

from brickrt import ops as operators
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import Outline, outline
from brickrt.runtime.cache.disk_cache import sources_digest


@cache
def code_digest() -> str:
    """Digest of the sources that print kernels and of the compiler's version."""
    folder = Path(operators.__file__).parent
    return llvmlite.__version__ + sources_digest(folder, without=("cuda",))


@cache
def engine_digest() -> str:
    """Digest of the sources that make the engine's own modules, which import from here and from operators alone."""
    return sources_digest(Path(__file__).parent.parent)


def digest_of(*parts: str) -> str:
    """Identity of machine code that these parts and the sources decide, 32 hexadecimal digits."""
    return hashlib.sha256("\n".join([code_digest(), *parts]).encode()).hexdigest()[:32]


def outline_digest(outline: Outline) -> str:
    """Name of all code of an outline."""
    return digest_of(outline.text)


def kernel_digest(kernel: Kernel) -> str:
    """Identity of a kernel, numbers that its code leaves open among it."""
    shape = outline(kernel)
    return digest_of(shape.text, repr(shape.numbers))
