"""What a compiled file says of itself, before its first page of data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.cpu import working_memory
from brickrt.runtime.cpu.workers import context_words, mailbox_words

SUFFIX = ".brick"


@dataclass(frozen=True)
class TensorRecord:
    """Type and shape of an input or output, by NumPy's name."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def info(self) -> TensorInfo:
        """The same as models say it."""
        return TensorInfo(np.dtype(self.dtype), self.shape)


@dataclass(frozen=True)
class SectionRecord:
    """Where a section lies, in bytes from the beginning of the data, and the checksum of each of its chunks."""

    offset: int
    nbytes: int
    sums: tuple[int, ...]


@dataclass(frozen=True)
class ImportRecord:
    """A function of the C library: the words of the code, by byte offset, that are to hold its address."""

    symbol: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class CodeRecord:
    """Where kernels and the engine's own functions begin in the code, and what they call outside."""

    kernels: tuple[int, ...]
    functions: Mapping[str, int]
    imports: tuple[ImportRecord, ...]


@dataclass(frozen=True)
class CompiledHeader:
    """All of a compiled file but its arrays.

    `brickrt` and `words` are the version and the digest of what the code was compiled against; `machine` and `needs`
    the architecture and the extensions of the processor that it runs on. `inputs` and `outputs` are the model's, in its
    order; `reads` and `writes` the program's. `constants` are the bytes of each packed constant. `plan` is the plan as
    `brickrt plan --output` writes it.
    """

    brickrt: str
    words: str
    target: str
    machine: str
    needs: tuple[str, ...]
    name: str
    inputs: Mapping[str, TensorRecord]
    outputs: Mapping[str, TensorRecord]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    arena_bytes: int
    scratch_bytes: int
    constants: tuple[int, ...]
    code: CodeRecord
    plan: str


@cache
def words_digest() -> str:
    """Digest of where the words lie that compiled code shares with Python: code for other words is refused."""
    names = [
        f"{module.__name__}.{name}={value}"
        for module in (context_words, mailbox_words, working_memory)
        for name, value in sorted(vars(module).items())
        if name.isupper() and isinstance(value, int | range | tuple)
    ]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
