"""Zarr arrays of version 2 and 3, and level 0 of OME-Zarr images, through the package zarr."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import Extents, added, check_box, nonempty, number_type, slices
from brickrt.runtime.files.descriptor import part_of, refused, sync_path
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead, FileToWrite
from brickrt.runtime.files.formats.chunked import GROUP_BYTES, ChunkedSource
from brickrt.runtime.files.formats.sliced import sampled_identity
from brickrt.runtime.files.identity import digest, folder_identity

_MARKS = ("zarr.json", ".zarray", ".zgroup")
_CHUNK_ROWS, _CHUNK_COLUMNS, _CHUNK_IN_VOLUMES = 64, 1024, (16, 128, 128)
_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_SPACE = ("z", "y", "x")


class ZarrSource(ChunkedSource):
    """A `BoxSource` of a Zarr array. Small chunks are asked for together, up to 4 MiB."""

    def __init__(self, array: Any, name: str, folder: Path | None) -> None:
        self._array, self._folder = array, folder
        shape = nonempty(name, array.shape)
        super().__init__(name, shape, number_type(name, array.dtype), array.chunks, GROUP_BYTES)

    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """The box, read by zarr."""
        try:
            return np.asarray(self._array[slices(lo, extents)])
        except MemoryError:
            raise
        except Exception as e:  # each codec has errors of its own
            raise InputError(f"{self.name}: a chunk at {list(lo)} cannot be read ({e}): write it again") from e

    def identity(self) -> str:
        """Digest of the names, sizes and times of all files of the array, and of its metadata; of metadata and 16
        samples where it is no folder on this machine."""
        if self._folder is not None:
            with refused(self.name):
                return folder_identity(self._folder)
        metadata = digest([self._array.metadata.to_dict()])
        return digest([metadata, sampled_identity(self._array, self.name, self.shape)])


def zarr_source(asked: FileToRead) -> ZarrSource:
    """A source of an array, of the only array of a group, or of an OME-Zarr image in full size. The name is a folder,
    or an address that zarr understands, such as `s3://…`."""
    where = asked.name
    zarr = needed("zarr", where)
    local = "://" not in where
    if local and not Path(where).exists():
        raise InputError(f"{where}: no such file: check the path")
    try:
        found = zarr.open(where, mode="r")
    except ImportError as e:  # of fsspec, where the address needs a package of its own
        raise InputError(f"{where}: needs a package that is not installed: {e}") from e
    except (OSError, ValueError, KeyError, TypeError, zarr.errors.BaseZarrError) as e:
        raise InputError(f"{where}: is damaged or no Zarr array ({e}): check the path") from e
    if not isinstance(found, zarr.Array):
        inside = _only_array(where, found)
        return zarr_source(replace(asked, name=f"{where.rstrip('/')}/{inside}"))
    return ZarrSource(found, where, Path(where) if local else None)


def zarr_object(array: Any) -> ZarrSource:
    """A source of an array that was opened by the caller."""
    return ZarrSource(array, f"Zarr array {list(array.shape)} {array.dtype}", None)


def _only_array(where: str, group: Any) -> str:
    """The path of the array that a group stands for."""
    image = group.attrs.get("ome", group.attrs).get("multiscales")
    if image:
        return str(image[0]["datasets"][0]["path"])
    names = sorted(name for name, _ in group.arrays())
    if len(names) != 1:
        there = ", ".join(f"'{name}'" for name in names[:8]) or "no arrays"
        raise InputError(f"{where}: is a group with {there}: name one, as {where}/{(names or ['NAME'])[0]}")
    return names[0]


class ZarrSink:
    """A `BoxSink` for a Zarr array (version 3), made under another name and renamed when it is closed.

    Chunks are whole or not there, as each is renamed when it is written. A box that covers a chunk in part makes zarr
    read the chunk and write it again: write multiples of `row_unit` rows, as wide as whole chunks or up to the end.
    """

    def __init__(self, new: FileToWrite) -> None:
        zarr = needed("zarr", new.name)
        self.shape, self.dtype, self.name, self.axis = new.shape, new.dtype, new.name, new.axis
        self.chunks: Extents | None = new.chunks or usual_chunks(new.shape)
        self.row_unit = self.chunks[new.axis]
        self._path = Path(os.path.realpath(new.name))
        self._check_target()
        self._group = self._path.name.endswith(".ome.zarr")
        part = part_of(self._path)
        self.resumed = new.resume and (part.exists() or self._path.exists())
        self._at = part if part.exists() or not self.resumed else self._path
        self._touched: set[Extents] = set()
        if self.dtype.name not in _TYPES:
            raise BrickError(f"{self.name}: Zarr cannot hold {self.dtype}: use another type, or .npy")
        with refused(self.name):
            self._array = self._opened(zarr) if self.resumed else self._made(zarr, new.remark)
            for described in {self._at / "zarr.json", self._folder / "zarr.json"}:
                sync_path(described)

    def _check_target(self) -> None:
        there = self._path
        if not there.parent.is_dir():
            raise BrickError(f"{self.name}: there is no folder {there.parent}: create it, or give another path")
        ours = there.is_dir() and (any((there / mark).exists() for mark in _MARKS) or not any(there.iterdir()))
        if there.exists() and not ours:
            raise BrickError(f"{self.name}: is there and no Zarr array: give another path, or remove it")

    @property
    def _folder(self) -> Path:
        return self._at / "0" if self._group else self._at

    def _made(self, zarr: Any, remark: str) -> Any:
        shutil.rmtree(self._at, ignore_errors=True)
        if self._group:
            axes = _ome_axes(self.name, len(self.shape))
            zarr.create_group(str(self._at), attributes={"ome": _ome(axes)})
        chunks = tuple(map(min, self.chunks or (), self.shape))
        return zarr.create_array(
            str(self._folder),
            shape=self.shape,
            dtype=self.dtype,
            chunks=chunks,
            compressors=None if self.dtype.kind == "f" else "auto",  # logits and pixels of floats hardly shrink
            attributes={"description": remark} if remark else None,
            dimension_names=_ome_axes(self.name, len(self.shape)) if self._group else None,
            config={"write_empty_chunks": True},  # a chunk of zeros must not look like one that was never written
        )

    def _opened(self, zarr: Any) -> Any:
        try:
            array = zarr.open_array(str(self._folder), mode="r+", config={"write_empty_chunks": True})
        except (FileNotFoundError, ValueError, KeyError) as e:
            raise BrickError(f"{self.name}: cannot be gone on with ({e}): leave out --resume to start again") from e
        wanted = (self.shape, self.dtype, tuple(map(min, self.chunks or (), self.shape)))
        if (array.shape, array.dtype, array.chunks) != wanted:
            raise BrickError(
                f"{self.name}: was begun with another shape, type or chunks: leave out --resume to start again"
            )
        return array

    @property
    def buffer_bytes(self) -> int:
        """Chunks on their way: as they are cut out, encoded and written, up to 4 MiB or one chunk at a time."""
        return 3 * max(GROUP_BYTES, math.prod(self._array.chunks) * self.dtype.itemsize)

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`; what it covers of chunks is in their files when it returns."""
        check_box(self.name, self.shape, self.dtype, lo, array)
        with refused(self.name):
            for begin, extents in self._groups(lo, array.shape):
                offset = tuple(b - a for a, b in zip(lo, begin))
                self._array[slices(begin, extents)] = array[slices(offset, extents)]
        self._touched.update(self._places(lo, added(lo, array.shape)))

    def _places(self, lo: Extents, hi: Extents) -> Iterator[Extents]:
        return product(*(range(a // c, -(-b // c)) for a, b, c in zip(lo, hi, self._array.chunks)))

    def _groups(self, lo: Extents, extents: Extents) -> Iterator[tuple[Extents, Extents]]:
        """Cuts a box along chunks into parts of up to 4 MiB."""
        hi, chunks = added(lo, extents), self._array.chunks
        group = max(1, GROUP_BYTES // (math.prod(chunks) * self.dtype.itemsize))
        along = max((k for k in range(len(chunks)) if chunks[k] < self.shape[k]), default=0)
        wide = tuple(c * group if k == along else c for k, c in enumerate(chunks))
        for at in product(*(range(a // w, -(-b // w)) for a, b, w in zip(lo, hi, wide))):
            begin = tuple(max(a, k * w) for a, k, w in zip(lo, at, wide))
            end = tuple(min(b, (k + 1) * w) for b, k, w in zip(hi, at, wide))
            yield begin, tuple(b - a for a, b in zip(begin, end))

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with what was written; elements that were not are 0. What cannot be decoded raises BrickError."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        try:
            for begin, extents in self._groups(lo, out.shape):
                offset = tuple(b - a for a, b in zip(lo, begin))
                out[slices(offset, extents)] = self._array[slices(begin, extents)]
        except MemoryError:
            raise
        except Exception as e:  # each codec has errors of its own
            raise BrickError(f"{self.name}: a chunk at {list(lo)} cannot be read ({e}): write it again") from e

    def sync(self) -> None:
        """Returns when the chunks written so far, and their names, are on the disk."""
        folders: set[Path] = set()
        for at in self._touched:
            path = self._folder / self._array.metadata.encode_chunk_key(at)
            sync_path(path)
            folders.update(folder for folder in path.parents if folder.is_relative_to(self._at))
        for folder in sorted(folders, reverse=True):
            sync_path(folder)
        self._touched.clear()

    def close(self) -> None:
        """Makes the array durable and gives it its name, in place of what had it."""
        for torn in self._at.rglob("*.partial"):  # of a chunk that Zarr was writing when a run was killed
            torn.unlink(missing_ok=True)
        self.sync()
        if self._at == self._path:
            return
        old = self._path.with_name(f".{self._path.name}.brickrt-old")
        with refused(self.name):
            shutil.rmtree(old, ignore_errors=True)
            if self._path.exists():
                os.rename(self._path, old)
            os.rename(self._at, self._path)
        sync_path(self._path.parent)
        shutil.rmtree(old, ignore_errors=True)

    def abandon(self, keep: bool = False) -> None:
        """Removes what was written; with `keep` it stays under its temporary name, for a run that resumes."""
        if not keep and self._at != self._path:
            shutil.rmtree(self._at, ignore_errors=True)


def usual_chunks(shape: Extents) -> Extents:
    """64 rows of 1024 elements of one channel, or 16×128×128 of a volume: few rows, so that few wait to be written."""
    space = _CHUNK_IN_VOLUMES if len(shape) >= 5 else (_CHUNK_ROWS, _CHUNK_COLUMNS)
    wanted = (*(1,) * max(0, len(shape) - len(space)), *space)[-len(shape) :]
    return tuple(map(min, wanted, shape))


def _ome_axes(name: str, rank: int) -> tuple[str, ...]:
    """Names of the axes as NCHW and NCDHW lie, with batches in the place of time."""
    if not 2 <= rank <= 5:
        raise BrickError(f"{name}: OME-Zarr images have 2 to 5 axes, this has {rank}: write a plain .zarr")
    return {2: _SPACE[1:], 3: ("c", *_SPACE[1:]), 4: ("t", "c", *_SPACE[1:]), 5: ("t", "c", *_SPACE)}[rank]


def _ome(axes: tuple[str, ...]) -> dict[str, Any]:
    """What OME-NGFF 0.5 says of an image in one size."""
    kinds = {"t": "time", "c": "channel"}
    described = [{"name": axis, "type": kinds.get(axis, "space")} for axis in axes]
    scale = [{"type": "scale", "scale": [1.0] * len(axes)}]
    image = {"axes": described, "datasets": [{"path": "0", "coordinateTransformations": scale}]}
    return {"version": "0.5", "multiscales": [image]}
