"""Writes compiled files."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO

import numpy as np

from brickrt.runtime.compiled.compiled_file import CHUNK, MAGIC, FileContent, paged
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
    """The CRC-32 of each chunk of the bytes of arrays one behind the other."""
    sums, left, total = list[int](), CHUNK, 0
    for array in arrays:
        flat, at = array.reshape(-1).view(np.uint8), 0
        while at < flat.nbytes:
            part = flat[at : at + left]
            total, at, left = zlib.crc32(part.data, total), at + part.nbytes, left - part.nbytes
            if not left:
                sums.append(total)
                left, total = CHUNK, 0
    return (*sums, total) if left < CHUNK else tuple(sums)
