"""The list of networks: what each is called, where it comes from, and the function that writes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A network of the zoo: `default_size` holds the spatial extents of its input, `channels` the channel count; with
    `any_size` its weights are the same for all extents, so that a model may leave them open."""

    name: str
    title: str
    source: str
    default_size: tuple[int, ...]
    channels: int
    any_size: bool = True


_NETWORKS: dict[str, tuple[Entry, Callable[..., Any]]] = {}


def network(
    name: str, title: str, source: str, default_size: tuple[int, ...], channels: int = 3, any_size: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers `write(net, x, **options) -> Activation` under `name`."""

    def register(write: Callable[..., Any]) -> Callable[..., Any]:
        _NETWORKS[name] = Entry(name, title, source, default_size, channels, any_size), write
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
