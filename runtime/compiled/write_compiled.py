"""Writes compiled files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO

import numpy as np

from brickrt.runtime.compiled.compiled_file import CHUNK, MAGIC, FileContent, checksum, paged
from brickrt.runtime.compiled.file_header import CompiledHeader, SectionRecord


def write_compiled(f: IO[bytes], header: CompiledHeader, sections: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Writes a file from its beginning, each section the bytes of arrays one behind the other. A file that is not
    written to its end is refused when it is opened. Raises OSError."""
    records, offset = dict[str, SectionRecord](), 0
    for name, arrays in sections.items():
        nbytes = sum(array.nbytes for array in arrays)
        records[name] = SectionRecord(offset, nbytes, _sums(arrays))
        offset += paged(nbytes)
    text = json.dumps(asdict(FileContent(header, records))).encode()
    f.write(MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text)
    for arrays in sections.values():
        f.write(bytes(paged(f.tell()) - f.tell()))
        for array in arrays:
            f.write(array.data)


def _sums(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The checksum of each chunk of the bytes of arrays one behind the other."""
    chunk, filled, sums = np.empty(CHUNK, np.uint8), 0, list[int]()
    for array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        while flat.nbytes:
            part = flat[: CHUNK - filled]
            chunk[filled : filled + part.nbytes] = part
            filled, flat = filled + part.nbytes, flat[part.nbytes :]
            if filled == CHUNK:
                sums.append(checksum(chunk))
                filled = 0
    return (*sums, checksum(chunk[:filled])) if filled else tuple(sums)
