"""Which files options --input stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from brickrt.cli.inputs.file_lists import input_files
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.source import load
from tests.support.cli_models import same_model, sum_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """a10.png, a2.png, b.npy, notes.txt, v.zarr/ and .hidden.png in the current folder's `in`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "v.zarr").mkdir(parents=True)
    for name in ("a10.png", "a2.png", "b.npy", "notes.txt", ".hidden.png"):
        (tmp_path / "in" / name).touch()
    same_model(tmp_path / "one.onnx", (1, 3, 8, 8))
    sum_model(tmp_path / "two.onnx")
    return tmp_path


@pytest.mark.parametrize("text", [".", "./", "x=."])
def test_the_current_folder(folder, monkeypatch, text):
    monkeypatch.chdir(folder / "in")
    runs = input_files(load(folder / "one.onnx"), [text])
    assert [run.main for run in runs] == ["a2.png", "a10.png", "b.npy", "v.zarr"]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["in"], ["in/a2.png", "in/a10.png", "in/b.npy", "in/v.zarr"]),
        (["in/*.png"], ["in/a2.png", "in/a10.png"]),
        (["in/b.npy", "x=in/a2.png"], ["in/b.npy", "in/a2.png"]),
        (["in/v.zarr"], ["in/v.zarr"]),
        (["absent.png"], ["absent.png"]),
    ],
)
def test_files_folders_and_patterns(folder, texts, found):
    runs = input_files(load(folder / "one.onnx"), texts)
    assert [run.main for run in runs] == found == [run.files["x"] for run in runs]


def test_one_file_goes_with_all_of_another_input(folder):
    runs = input_files(load(folder / "two.onnx"), ["a=in/b.npy", "b=in/*.png"])
    assert [(run.files["a"], run.files["b"], run.main) for run in runs] == [
        ("in/b.npy", "in/a2.png", "in/a2.png"),
        ("in/b.npy", "in/a10.png", "in/a10.png"),
    ]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["in/*.jpg"], "matches no file"),
        (["in/a2.png", "in"], "in/a2.png: is given twice"),
        (["empty"], "empty: holds no file of .npy"),
    ],
)
def test_refused(folder, texts, said):
    Path("empty").mkdir()
    with pytest.raises(InputError, match=said):
        input_files(load(folder / "one.onnx"), texts)


def test_archives_of_a_folder_hold_all_inputs_of_several(folder):
    (folder / "archives").mkdir()
    for k in range(2):
        np.savez(folder / "archives" / f"{k}.npz", a=np.zeros((1, 4)), b=np.zeros((1, 4)))
    runs = input_files(load("two.onnx"), ["archives"])
    assert [run.files for run in runs] == [{None: f"archives/{k}.npz"} for k in range(2)]
