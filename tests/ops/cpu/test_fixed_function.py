"""Compiled functions of the host: what is missing is LLVM alone."""

from __future__ import annotations

import pytest

from brickrt.ops.cpu import fixed_function


def test_a_module_of_ours_that_is_not_there_is_an_error():
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        fixed_function.item_loop("sampling.nowhere", "emit_nothing")


@pytest.mark.parametrize(("missing", "refused"), [("llvmlite", False), ("brickrt.other", True)])
def test_without_llvm_there_is_no_function(monkeypatch, missing, refused):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(fixed_function, "import_module", absent)
    if not refused:
        assert fixed_function.fixed_function("", "f", ret=int) is None
        return
    with pytest.raises(ModuleNotFoundError, match="other"):
        fixed_function.fixed_function("", "f", ret=int)
