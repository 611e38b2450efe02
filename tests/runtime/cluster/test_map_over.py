"""Many files over one cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import zarr

from brickrt import BrickError, Runtime, map_over
from brickrt.runtime.files import extras
from tests.runtime.cluster.helpers import small_network


@pytest.fixture
def files(tmp_path: Path) -> Path:
    onnx.save(small_network(pooled=False), tmp_path / "model.onnx")
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    for name in "abc":
        x = np.random.default_rng(ord(name)).standard_normal((1, 2, 150, 40)).astype(np.float32)
        np.save(tmp_path / "in" / f"{name}.npy", x)
    return tmp_path


def test_each_file_has_its_output(client, files: Path):
    found = map_over(files / "model.onnx", files / "in", files / "out", client)
    assert [Path(path).name for path in found.values()] == ["a.zarr", "b.zarr", "c.zarr"]
    for path, output in found.items():
        expected = Runtime(files / "model.onnx").execute({"x": np.load(path)})["y"]
        assert np.abs(zarr.open(output)[:].reshape(expected.shape) - expected).max() < 1e-4


def test_a_file_that_fails_stops_no_other(client, files: Path):
    np.save(files / "in" / "b.npy", np.zeros((1, 2, 10, 10, 10), np.float32))
    with pytest.raises(BrickError, match=r"b\.npy: .*\(1 of 3 files failed\)"):
        map_over(files / "model.onnx", files / "in", files / "out", client)
    made = (files / "out" / "a.zarr" / "zarr.json").stat().st_mtime_ns
    np.save(files / "in" / "b.npy", np.zeros((1, 2, 150, 40), np.float32))
    map_over(files / "model.onnx", files / "in", files / "out", client)  # what is there is left alone
    assert (files / "out" / "a.zarr" / "zarr.json").stat().st_mtime_ns == made
    assert (files / "out" / "b.zarr").is_dir() and (files / "out" / "c.zarr").is_dir()


def test_refusals(client, files: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(BrickError, match="there is no such folder"):
        map_over(files / "model.onnx", files / "in", files / "nowhere", client)
    with pytest.raises(BrickError, match=r"has none of \.npy"):
        map_over(files / "model.onnx", files / "out", files / "out", client)
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(BrickError, match=r'needs the package distributed: pip install "brickrt\[dask\]"'):
        map_over(files / "model.onnx", files / "in", files / "out", client)
