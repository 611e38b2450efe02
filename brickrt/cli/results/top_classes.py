"""The likeliest classes of a picture, by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brickrt.cli.results.decisions import gives_probabilities
from brickrt.cli.terminal.text import printable
from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.source import SourceGraph

IMAGENET = 1000
MOST_NAMED = 40  # characters of a name that are shown


class ClassShare(NamedTuple):
    """A class, by its number from 0 on, and how likely it is, from 0 to 1."""

    number: int
    name: str
    share: float


def top_classes(source: SourceGraph, scores: np.ndarray, count: int, labels: Path | None) -> list[ClassShare]:
    """The `count` likeliest classes, the likeliest first. Scores that the model does not end in a softmax or a sigmoid
    for go through a softmax. Raises BrickError where `scores` are not one number for each class."""
    if scores.size != max(scores.shape, default=0) or not scores.size or scores.dtype.kind not in "fiu":
        raise BrickError(f"--top: the output is {list(scores.shape)}, not one number for each class: leave --top out")
    values = scores.reshape(-1).astype(np.float64)
    if not gives_probabilities(source):
        values = np.exp(values - values.max())
        values /= values.sum()
    named = class_names(labels, values.size)
    order = np.argsort(-values, kind="stable")[:count]
    return [ClassShare(int(k), named[k], float(values[k])) for k in order]


@cache
def class_names(labels: Path | None, count: int) -> tuple[str, ...]:
    """A name for each class: from a file with one a line; else ImageNet's for 1000 classes, or for 1001 with the
    background first; else numbers."""
    if labels is not None:
        found = names_in(labels)
        if len(found) != count:
            raise InputError(f"--labels {labels}: has {len(found)} names, the model {count} classes: give one a line")
        return found
    if count in (IMAGENET, IMAGENET + 1):
        known = tuple(files(__package__).joinpath("imagenet.txt").read_text("utf-8").splitlines())
        return known if count == IMAGENET else ("background", *known)
    return tuple(f"class {k}" for k in range(count))


def names_in(labels: Path) -> tuple[str, ...]:
    """The lines of a file that are not empty. Raises InputError where it cannot be read."""
    try:
        return tuple(line.strip() for line in labels.read_text("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as e:
        raise InputError(f"--labels {labels}: is no text: give a file with one name a line") from e
    except OSError as e:
        raise InputError(f"--labels {labels}: cannot be read ({e.strerror}): check the path") from e


def top_json(top: list[ClassShare]) -> list[dict[str, Any]]:
    """The classes as JSON has them."""
    return [share._asdict() for share in top]


def top_lines(top: list[ClassShare]) -> list[str]:
    """A line for each class."""
    return [f"{share:7.1%}  {printable(name)[:MOST_NAMED]}" for _, name, share in top]
