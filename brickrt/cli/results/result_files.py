"""Results as files: what the name of the path says, or one in a folder for each input."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.cli.files import check_writable, write_whole
from brickrt.cli.inputs.feeds import Feed
from brickrt.cli.inputs.file_lists import InputFiles, all_files
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.cli.requests import ResultRequest, RunRequest
from brickrt.cli.results.arrays import write_output
from brickrt.cli.results.decisions import overlay
from brickrt.cli.results.pictures import PixelScale, check_stored, exceeds_bytes, planes_of, write_picture
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files.formats.box_files import BoxSource
from brickrt.runtime.files.formats.file_formats import WRITTEN_WHOLE, format_of, is_zarr, listed, stem_of, way_of
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.files.tensors import as_file

NAME = "{}"  # in a path, stands for the input's name


def is_folder(text: str) -> bool:
    """Whether a path is to hold one result for each input: it ends in a slash, is a folder, or has `NAME` in it."""
    named = format_of(text, WRITTEN_WHOLE)
    return NAME in text or (named is None and (text.endswith(os.sep) or Path(text).is_dir()))


def output_paths(names: Sequence[str], path: Path) -> dict[str, Path]:
    """The file of each output: the one that was given, or of several outputs, others beside it, as `out.NAME.zarr`."""
    if len(names) == 1:
        return {names[0]: path}
    plain = {name: "".join(c if c.isalnum() or c in "-_." else "_" for c in name) for name in names}
    if len(set(plain.values())) < len(names):
        raise BrickError(f"the outputs {', '.join(map(repr, names))} are one file: rename them in the model")
    stem = stem_of(path)
    return {name: path.with_name(f"{stem}.{plain[name]}{path.name[len(stem) :]}") for name in names}


def check_results(output: str, outputs: Mapping[str, TensorInfo], stored: str | None) -> None:
    """Raises BrickError, before anything runs, for a path to which results could not be written, of the type `stored`
    where one was asked for."""
    path, found = Path(output), format_of(output, WRITTEN_WHOLE)
    if is_folder(output):
        folder = path.parent if NAME in output else path
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise BrickError(f"--output {path}: {folder} cannot be written: check the permissions")
        return
    if path.suffix.lower() == ".json":
        raise BrickError(f"--output {path}: holds arrays or pictures: for JSON use --json > {path}, without --output")
    if found is None:
        known = listed(WRITTEN_WHOLE)
        raise BrickError(f"--output {path}: is none of {known}: change the name's end, or end it with /")
    if found.way == "array" and len(outputs) != 1:
        raise BrickError(f"--output {path}: the model has {len(outputs)} outputs, .npy holds one: use .npz")
    for name, info in outputs.items():
        rank = None if info.shape is None else len(info.shape)
        if found.way == "picture" and rank not in (None, 2, 3, 4):
            raise BrickError(f"--output {path}: the output '{name}' has {rank} axes, which is no picture: use .npy")
    check_stored(path, stored)
    if not is_zarr(output):
        check_writable(Path(str(path).partition("::")[0]))


def check_kept(request: RunRequest, runs: Sequence[InputFiles], names: Sequence[str]) -> None:
    """Refuses, before anything runs, to write over the model or a file that the run reads. Results in a folder, whose
    names come from the inputs, are looked at one by one."""
    files = list(request.files().items())
    if request.output is not None:
        del files[0]
        path = Path(request.output)
        results = () if is_folder(request.output) else (path, *output_paths(names, path).values())
        files += [("--output", one) for one in results]
    model, read = FilesRead([request.model]), FilesRead([*request.lists(), *all_files(runs)])
    for option, path in files:
        model.check(option, path, "the model itself")
        read.check(option, path)


@dataclass(frozen=True)
class ResultFiles:
    """Writes results to `output`, or one for each of `runs` below it; `asked` is what is made of them, `image` what was
    done to inputs."""

    output: str
    runs: Sequence[InputFiles]
    asked: ResultRequest
    image: Preprocessing
    threads: int

    def write(self, given: InputFiles | None, feed: Feed, outputs: Mapping[str, Any]) -> list[Path]:
        """Writes the outputs of one run; gives the files. Raises BrickError."""
        path = self._path(given, feed, outputs)
        way = way_of(path)
        if way == "archive" or (way == "array" and self.asked.stored is None):
            write_output(path, self._arrays(feed, outputs))
            return [path]
        paths = output_paths(list(outputs), path)
        for one in paths.values():
            self._read.check("--output", one)
        for name, value in outputs.items():
            if not isinstance(value, np.ndarray):
                raise BrickError(f"--output {path}: the output '{name}' is no tensor: use .npz")
            self._write_one(paths[name], name, value, feed)
        return list(paths.values())

    @cached_property
    def _read(self) -> FilesRead:
        return FilesRead(all_files(self.runs))

    def _arrays(self, feed: Feed, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.asked.save is None:
            return outputs
        return {name: self._made(value, feed, 1) for name, value in outputs.items()}

    def _write_one(self, path: Path, name: str, value: np.ndarray, feed: Feed) -> None:
        if way_of(path) != "picture":
            write_boxes(path, self._made(value, feed, 1), self.asked, feed.like)
            return
        made = self._made(value, feed, 255)
        planes = planes_of(made, self.image.layout == "nhwc")
        if planes is None:
            raise BrickError(f"{path}: the output '{name}' is {list(made.shape)}, no picture: use .npy")
        if self.asked.stored != "uint16" and exceeds_bytes(planes):
            raise BrickError(f"{path}: '{name}' has whole numbers above 255: add --as uint16, or use .npy")
        check_stored(path, self.asked.stored)
        scale = PixelScale.of(self.image, len(planes), self.asked.stored, self.asked.stored_scale)
        write_picture(path, planes, scale, self.threads)

    def _made(self, value: np.ndarray, feed: Feed, white: int) -> np.ndarray:
        """What --save names, of labels; foreground is `white` in a mask."""
        if self.asked.save == "mask":
            return (value != 0) * np.uint8(white)
        if self.asked.save == "overlay":
            planes = planes_of(value, False)
            if feed.picture is None or planes is None:
                raise BrickError("--save overlay is of pictures: use --save labels or mask")
            return overlay(feed.picture, planes[0])[None]
        return value

    def _path(self, given: InputFiles | None, feed: Feed, outputs: Mapping[str, Any]) -> Path:
        """Where the outputs of one run go. Raises BrickError for the input itself."""
        path = Path(self.output)
        if is_folder(self.output):
            name = _stem(given.main, self.runs) if given else "result"
            path = Path(self.output.replace(NAME, name))
            if NAME not in self.output:
                path = path / f"{name}{_suffix(given, feed, outputs)}"
            path.parent.mkdir(parents=True, exist_ok=True)
        self._read.check("--output", path)
        return path


def _stem(file: str, runs: Sequence[InputFiles]) -> str:
    """The input's name without its ending, or with it where another input has the same."""
    name = stem_of(file)
    alike = sum(stem_of(run.main) == name for run in runs)
    return Path(file.partition("::")[0]).name if alike > 1 else name


def _suffix(given: InputFiles | None, feed: Feed, outputs: Mapping[str, Any]) -> str:
    """The ending of a result in a folder: that of its input, where the outputs are of the kind."""
    values = list(outputs.values())
    if len(values) != 1 or not isinstance(values[0], np.ndarray):
        return ".npz"
    main = given.main.partition("::")[0].lower() if given else ""
    if way_of(main) == "picture":
        return ".png" if values[0].ndim > 2 and planes_of(values[0], False) is not None else ".npy"
    if feed.like is not None and values[0].ndim >= 4 and format_of(main, WRITTEN_WHOLE):
        return Path(main).name[len(stem_of(main)) :] or ".npy"
    return ".npy"


def write_boxes(path: Path, value: np.ndarray, asked: ResultRequest, like: BoxSource | None) -> None:
    """Writes an array as TIFF, NIfTI, Zarr, HDF5 or .npy. Raises BrickError; nothing is left half-written."""
    if way_of(path) == "packed":
        _write_packed(path, value, asked, like)
        return
    value = np.ascontiguousarray(value.astype(np.uint8) if value.dtype == bool else value)
    axis = min(2, value.ndim - 1)
    sink = as_file(path, value.shape, value.dtype, stored=asked.stored, scale=asked.stored_scale, axis=axis, like=like)
    try:
        sink.write((0,) * value.ndim, value)
    except BaseException:
        sink.abandon()
        raise
    sink.close()


def _write_packed(path: Path, value: np.ndarray, asked: ResultRequest, like: BoxSource | None) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        plain = Path(folder, "plain.nii")
        write_boxes(plain, value, asked, like)
        with plain.open("rb") as volume:

            def pack(file: Any) -> None:
                with gzip.GzipFile("", "wb", 3, file, mtime=0) as packed:
                    shutil.copyfileobj(volume, packed, 1 << 20)

            write_whole(path, pack)
