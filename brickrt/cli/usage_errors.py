"""What is said of options that cannot be read: the option, what was given, and what it takes.

Typer leaves the wording to the library that it checks values with, which differs between its versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from brickrt.graph.errors import BrickError

MAY_BE_EMPTY = ("--peers",)  # where nothing means none


def refuse_empty(words: Sequence[str]) -> None:
    """Raises BrickError for an empty word of a command line, as a script gives it whose variable is not set: as a path
    it would be the current folder."""
    for before, word in zip(("", *words), words, strict=False):
        option, equals, value = word.partition("=") if word.startswith("--") else (before, "=", word)
        if equals and not value and option not in MAY_BE_EMPTY:
            what = option if option.startswith("-") else "an argument"
            raise BrickError(f"{what} is empty: give a value, or leave it out")


def usage_message(error: Any, words: Sequence[str]) -> str:
    """What is wrong with the value of an option, for an error of typer's, of a command line of these words; "" where
    it is something else."""
    param, ctx = getattr(error, "param", None), getattr(error, "ctx", None)
    if param is None or ctx is None or not isinstance(error, typer.BadParameter):
        return ""
    option, value = _given(param.opts, words)
    callback = inspect.unwrap(ctx.command.callback)
    hint = get_type_hints(callback, include_extras=True).get(param.name)
    if value is None or hint is None:
        return ""
    kind, *details = get_args(hint)
    expected = _expected(_plain(kind), details[0] if details else None)
    return f"{option} '{value}' is impossible: {expected}" if expected else ""


def _given(options: Sequence[str], words: Sequence[str]) -> tuple[str, str | None]:
    """The option as it was written, and its value, which is None where there is none."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in options:
            return name, value if equals else words[at + 1] if at + 1 < len(words) else None
    return options[0], None


def _plain(kind: Any) -> Any:
    """The type without None."""
    others = [each for each in get_args(kind) if each is not NoneType]
    return others[0] if get_origin(kind) is not Literal and len(others) == 1 else kind


def _expected(kind: Any, info: Any) -> str:
    least = getattr(info, "min", None)
    above = "" if least is None else f" of at least {least}"
    if get_origin(kind) is Literal:
        return f"use one of {', '.join(get_args(kind))}"
    if kind is int:
        return f"give a whole number{above}"
    return {float: f"give a number{above}, such as 0.5", Path: "give a path"}.get(kind, "")
