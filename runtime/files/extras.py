"""Packages that only some formats need."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from brickrt.graph.errors import BrickError


def needed(package: str, name: str, extra: str = "files") -> ModuleType:
    """The package, imported. Raises BrickError, which says what to install, where it is missing; `name` is the file."""
    if find_spec(package) is None:
        raise BrickError(f'{name}: needs the package {package}: pip install "brickrt[{extra}]"')
    return import_module(package)
