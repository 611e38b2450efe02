"""Functions for what the host does in loops: compiled once per process, in about 50 ms each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from brickrt.ops.cpu.isa import Isa

if TYPE_CHECKING:
    from brickrt.ops.cpu.compile import LoadedObjects

_HOST = Isa(1, 16)  # LLVM finds the processor's name and features
_KEPT_CODE: list[LoadedObjects] = []  # the owners of the functions' code


def fixed_function(text: str, name: str, *args: type, ret: type) -> Callable[..., int] | None:
    """The function `name` of a module in LLVM's text, with these ctypes types; None where LLVM is not installed, as on
    machines whose GPU does without."""
    return _loaded(text).function(name, *args, ret=ret) if _has_llvm() else None


@cache
def item_loop(module: str, emit: str, *options: object) -> int | None:
    """The address of a function of items (see `ItemLoop`) that `emit` of the Python module `module` makes with these
    options; None where LLVM is not installed."""
    if not _has_llvm():
        return None
    from llvmlite import ir

    made = ir.Module(emit)
    getattr(import_module(f"brickrt.ops.cpu.{module}"), emit)(made, emit, *options)
    return _loaded(str(made)).address(emit)


def run_alone(function: int, words: int, scratch: int) -> None:
    """Calls a function of items on this thread alone."""
    _CALL(function)(words, scratch)


_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _has_llvm() -> bool:
    try:
        import_module("llvmlite")
    except ModuleNotFoundError as e:
        if e.name != "llvmlite":
            raise
        return False
    return True


def _loaded(text: str) -> LoadedObjects:
    from brickrt.ops.cpu.compile import LoadedObjects, to_object

    library = LoadedObjects()
    library.add(to_object(text, _HOST))
    _KEPT_CODE.append(library)
    return library
