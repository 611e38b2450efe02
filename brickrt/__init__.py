"""brickrt runs ONNX networks as a graph of brick tasks, across layers instead of layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brickrt.graph.onnx_import.source import load
    from brickrt.runtime.session.runtime import Runtime

__version__ = "0.1.0"
__all__ = ["Runtime", "__version__", "load"]

_HOMES = {"Runtime": "brickrt.runtime.session.runtime", "load": "brickrt.graph.onnx_import.source"}


def __getattr__(name: str) -> Any:
    """Imports `load` and `Runtime` on first use, so that `import brickrt` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'brickrt' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
