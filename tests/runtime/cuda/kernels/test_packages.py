"""Libraries of packages are loaded by hand, the first folder's newest, so that others find them by name."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from brickrt.runtime.cuda.kernels import packages


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """Two folders with libraries; those named "broken" do not load."""
    files = ("a/liba.so.12", "a/liba.so.13", "b/liba.so.14", "a/libb.so.1-broken", "b/libb.so.1", "b/liblonger.so.1")
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    found: list[str] = []

    def load(path: str) -> None:
        if "broken" in path:
            raise OSError
        found.append(str(Path(path).relative_to(tmp_path)))

    monkeypatch.setattr(packages, "folders", lambda kind: [tmp_path / "a", tmp_path / "b"])
    monkeypatch.setattr(packages, "ctypes", SimpleNamespace(CDLL=load))
    return found


@pytest.mark.parametrize(("name", "file"), [("a", "a/liba.so.13"), ("b", "b/libb.so.1"), ("c", None), ("long", None)])
def test_the_first_that_loads(loaded, name, file):
    packages.load_library(name)
    assert loaded == ([file] if file else [])


def test_folders(monkeypatch):
    monkeypatch.setattr(
        packages.importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=["/site/nvidia"])
    )
    monkeypatch.setenv("CUDA_PATH", "/toolkit")
    found = [str(folder) for folder in packages.folders("lib")]
    assert found.index("/site/nvidia/cu13/lib") < found.index("/toolkit/lib") < found.index("/toolkit/lib64")
    assert "/site/nvidia/cudnn/lib" in found
