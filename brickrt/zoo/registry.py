"""The list of networks: what each is called, where it comes from, and the function that writes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Input:
    """An input of a network. In `shape`, "batch" and "size" stand for the batch and for all extents of space, a number
    for channels or features. Whole numbers are below `below`."""

    name: str
    shape: tuple[str | int, ...]
    dtype: str = "float32"
    below: int = 0

    @property
    def channels(self) -> int:
        """How many channels or features there are; 0 where the input has no such axis."""
        return next((extent for extent in self.shape if isinstance(extent, int)), 0)

    def extents(self, batch: Any, size: Sequence[Any]) -> list[Any]:
        """The shape for this batch and these extents of space."""
        known = {"batch": (batch,), "size": size}
        return [extent for part in self.shape for extent in (known[part] if isinstance(part, str) else (part,))]


@dataclass(frozen=True)
class Entry:
    """A network of the zoo: `default_size` holds the spatial extents of its inputs; with `any_size` its weights are the
    same for all extents, so that a model may leave them open."""

    name: str
    title: str
    source: str
    default_size: tuple[int, ...]
    inputs: tuple[Input, ...]
    any_size: bool = True

    @property
    def channels(self) -> int:
        """The channels, or features, of the first input; 0 where it has none."""
        return self.inputs[0].channels


_NETWORKS: dict[str, tuple[Entry, Callable[..., Any]]] = {}


def network(
    name: str,
    title: str,
    source: str,
    default_size: tuple[int, ...],
    channels: int = 3,
    any_size: bool = True,
    inputs: tuple[Input, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers `write(net, x, **options) -> Activation` under `name`; without `inputs` it takes an image or a volume,
    `x`, of so many channels."""
    taken = inputs or (Input("x", ("batch", channels, "size")),)

    def register(write: Callable[..., Any]) -> Callable[..., Any]:
        _NETWORKS[name] = Entry(name, title, source, default_size, taken, any_size), write
        return write

    return register


def names() -> list[str]:
    """Names of all networks, in alphabetical order."""
    return sorted(_NETWORKS)


def lookup(name: str) -> tuple[Entry, Callable[..., Any]]:
    """Entry and writer of a network; ValueError lists the known names."""
    if name not in _NETWORKS:
        raise ValueError(f"no network is called {name!r}; known: {', '.join(names())}")
    return _NETWORKS[name]


def check_options(name: str, options: dict[str, Any]) -> None:
    """ValueError unless the writer of `name` takes every one of `options`."""
    taken = list(inspect.signature(lookup(name)[1]).parameters)[2:]
    for key in options:
        if key not in taken:
            raise ValueError(f"{name}: no option is called {key!r}; it takes {', '.join(taken) or 'none'}")
