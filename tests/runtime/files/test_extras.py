"""Packages that only some formats need."""

from __future__ import annotations

import sys

import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.files import extras
from brickrt.runtime.files.extras import leaving_out, needed

LOOKS_FOR = """
try:
    import brickrt_test_heavy as heavy
except ImportError:
    heavy = None
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A package that looks for a heavy one, and the heavy one."""
    (tmp_path / "brickrt_test_format.py").write_text(LOOKS_FOR)
    (tmp_path / "brickrt_test_heavy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("brickrt_test_format", "brickrt_test_heavy"):
        sys.modules.pop(name, None)


def test_what_is_left_out_is_not_imported_and_may_be_later(packages):
    with leaving_out("brickrt_test_heavy"):
        assert needed("brickrt_test_format", "a file").heavy is None
    assert needed("brickrt_test_heavy", "a file") is sys.modules["brickrt_test_heavy"]


def test_what_is_imported_already_is_found(packages):
    heavy = needed("brickrt_test_heavy", "a file")
    with leaving_out("brickrt_test_heavy"):
        assert needed("brickrt_test_format", "a file").heavy is heavy
    assert sys.modules["brickrt_test_heavy"] is heavy


def test_nothing_is_left_out_by_default(packages):
    assert needed("brickrt_test_format", "a file").heavy is not None


def test_a_missing_package_is_named_with_what_to_install():
    with pytest.raises(BrickError, match=r'x.abc: needs the package brickrt_none: pip install "brickrt\[geo\]"'):
        needed("brickrt_none", "x.abc", "geo")


def test_zarr_brings_cupy_where_neither_is_imported_and_cupy_is_not_left_out(packages, monkeypatch):
    monkeypatch.setattr(extras, "GPU_ARRAYS", "brickrt_test_none")
    monkeypatch.delitem(sys.modules, "zarr", raising=False)
    assert not extras.brings_gpu_arrays()
    monkeypatch.setattr(extras, "GPU_ARRAYS", "brickrt_test_heavy")
    assert extras.brings_gpu_arrays()
    with leaving_out("brickrt_test_heavy"):
        assert not extras.brings_gpu_arrays()
    needed("brickrt_test_heavy", "a file")
    assert not extras.brings_gpu_arrays()
