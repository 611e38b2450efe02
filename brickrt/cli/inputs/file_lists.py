"""Which files a run takes: one, several, those of a folder, those that a pattern matches."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from brickrt.cli.terminal.text import note
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.files.formats.file_formats import READ_WHOLE, format_of, is_zarr, listed, way_of


@dataclass(frozen=True)
class InputFiles:
    """The files of one run of the model, by input; an archive of several inputs has the name None. Its result is
    called after `main`, the first one that other runs do not share."""

    files: dict[str | None, str]
    main: str


def all_files(runs: Sequence[InputFiles]) -> list[str]:
    """The files that runs read."""
    return [file for run in runs for file in run.files.values()]


def input_files(source: SourceGraph, texts: Sequence[str]) -> list[InputFiles]:
    """The runs that options --input ask for, in order. An input with one file has it in all runs; others have as many
    files as there are runs."""
    lists = _by_input(source, texts)
    if not lists:
        return []
    longest = max(lists.values(), key=len)
    for name, files in lists.items():
        if len(files) not in (1, len(longest)):
            raise InputError(f"input '{name}' has {len(files)} files, another {len(longest)}: give one, or as many")
    first = next(name for name, files in lists.items() if len(files) == len(longest))
    return [
        InputFiles({name: files[k % len(files)] for name, files in lists.items()}, lists[first][k])
        for k in range(len(longest))
    ]


def named_files(source: SourceGraph, files: Sequence[str]) -> dict[str, str]:
    """Paths, or places inside files as `a.h5::name`, by input name, for one run."""
    if not files:
        wanted = ", ".join(f"'{name}' {describe(info)}" for name, info in source.inputs.items())
        raise InputError(f"no input is given, the model takes {wanted}: use --input FILE")
    named: dict[str, str] = {}
    for text in files:
        given, path = split(source, text)
        name = given or only_input(source, Path(path))
        if name in named:
            raise InputError(f"input '{name}' is given twice: give it once")
        named[name] = path
    return named


def _by_input(source: SourceGraph, texts: Sequence[str]) -> dict[str | None, list[str]]:
    lists: dict[str | None, list[str]] = {}
    for text in texts:
        given, path = split(source, text)
        if not path:
            raise InputError(f"--input '{text}' names no file: write it as --input NAME=FILE")
        found = _expanded(path)
        name = given
        archives = all(way_of(file) == "archive" for file in found)
        if name is None and not (archives and (len(found) == 1 or len(source.inputs) > 1)):
            name = only_input(source, Path(path))
        taken = lists.setdefault(name, [])
        for file in found:
            if file in taken:
                raise InputError(f"{file}: is given twice: give it once")
        taken.extend(found)
    return lists


def _expanded(path: str) -> list[str]:
    """The files that a path stands for; itself where it is one."""
    outer = path.partition("::")[0]
    if Path(outer).is_dir() and not is_zarr(outer):
        return _in_folder(Path(outer))
    if not Path(outer).exists() and any(c in path for c in "*?[") and "://" not in path:
        found = sorted(glob.glob(path, recursive=True), key=_in_order)
        if not found:
            raise InputError(f"{path}: matches no file: check the pattern")
        return found
    return [path]


def _in_folder(folder: Path) -> list[str]:
    known = [p for p in folder.iterdir() if format_of(p.name, READ_WHOLE) and not p.name.startswith(".")]
    if not known:
        raise InputError(f"{folder}: holds no file of {listed(READ_WHOLE)}: give another folder")
    return sorted(map(str, known), key=_in_order)


def note_skipped(texts: Sequence[str]) -> None:
    """Says how many files of folders among options --input are of no kind that is read. Call it once nothing can fail:
    an error is to be the only line."""
    for text in texts:
        path = text if Path(text).exists() else text.partition("=")[2]
        folder = Path(path)
        if not path or not folder.is_dir() or is_zarr(path):
            continue
        left = [p for p in folder.iterdir() if not (p.name.startswith(".") or p.is_dir())]
        others = [p for p in left if not format_of(p.name, READ_WHOLE)]
        if others:
            note(f"{folder}: {len(others)} files of other kinds are skipped, such as {min(others).name}")


def _in_order(path: str) -> list[tuple[int, str]]:
    """A key that has 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _parts(path)]


def _parts(path: str) -> Iterator[str]:
    part = ""
    for c in path:
        if part and c.isdecimal() != part[-1].isdecimal():
            yield part
            part = ""
        part += c
    if part:
        yield part


def split(source: SourceGraph, text: str) -> tuple[str | None, str]:
    """`name=file` or `file`. Names and paths may contain '=': the model's inputs and the files that exist decide."""
    names = [name for name in (*source.inputs, *source.optional) if text.startswith(f"{name}=")]
    if names:
        name = max(names, key=len)
        return name, text[len(name) + 1 :]
    before, equals, _ = text.partition("=")
    if equals and not Path(text).exists():
        raise InputError(f"--input {text}: the model has no input '{before}': its inputs are {_names(source)}")
    return None, text


def _names(source: SourceGraph) -> str:
    return ", ".join(f"'{name}'" for name in source.inputs) or "none"


def only_input(source: SourceGraph, path: Path) -> str:
    """The model's only input. Raises InputError where there is none or several."""
    if len(source.inputs) == 1:
        return next(iter(source.inputs))
    if not source.inputs:
        raise InputError(f"--input {path}: the model takes no inputs: leave it out")
    raise InputError(f"--input {path}: the model takes {_names(source)}: say which, as --input NAME={path}")
