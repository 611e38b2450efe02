"""Runs a command: its result to standard output, whatever goes wrong in one line to standard error."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from brickrt.cli.app import DEBUG, PROGRAM, app
from brickrt.cli.failure import Failure
from brickrt.cli.terminal.signals import ENDING, Signals, heard
from brickrt.cli.terminal.text import note
from brickrt.cli.usage_errors import refuse_empty, usage_message
from brickrt.graph.errors import BrickError

atexit.register(gc.freeze)  # what ends with the process need not be collected: that took 0.2 s
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_UsageError: Any = typer.BadParameter.__mro__[1]  # its module differs between versions of typer


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command that `args` (default: the process's) name. Gives the exit code: 0, 1 for a failure that is not
    the user's, 2 for bad input, 128 and its number for a signal that ended it: 130 after Ctrl-C."""
    _open_closed_streams()
    words = list(sys.argv[1:] if args is None else args)
    signals, code = Signals(), INTERRUPTED
    with suppress(KeyboardInterrupt), heard(signals):
        code = _ran(words)
    if code == INTERRUPTED or (code and signals.ended_by):  # what fails after a signal, fails for that reason
        ended_by = signals.ended_by or signal.SIGINT
        if ended_by.name == "SIGHUP":  # nobody reads on
            _drop_output(1, 2)
        note(ENDING[ended_by.name])
        return 128 + ended_by
    return code


def _ran(words: list[str]) -> int:
    try:
        return _command([word for word in words if word != DEBUG])
    except (BrokenPipeError, SystemExit) as e:  # typer exits by itself at a broken pipe, and after completing words
        if isinstance(e, SystemExit) and not e.code:
            return 0
        _drop_output(1)
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as e:
        if DEBUG in words:
            traceback.print_exc()
        message, code = _explain(e, words)
        note(message)
        return code


@cache
def _program() -> Any:
    """All commands with their options. To make them of the functions takes 12 ms: a process that runs several commands
    makes them once."""
    return get_command(app)


def _command(words: list[str]) -> int:
    """Commands return the text to print, or a `Failure` with it; typer returns a number where it has ended the program
    itself."""
    refuse_empty(words)
    result = _program().main(words or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    text = result.text if isinstance(result, Failure) else result
    try:
        if isinstance(text, str) and text:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        raise _unwritable(e) from e
    if isinstance(result, Failure):
        note(result.why)
        return FAILED
    return result if isinstance(result, int) else 0


def _unwritable(error: OSError) -> BrickError:
    _drop_output(1)
    return BrickError(f"standard output cannot be written ({error.strerror}): send it elsewhere")


def _is_full() -> bool:
    """Whether standard output takes no line more."""
    try:
        os.write(1, b"\n")
    except OSError as e:
        return e.errno == errno.ENOSPC
    return False


def _explain(error: Exception, words: Sequence[str]) -> tuple[str, int]:
    """The line to print for an error of a command line of these words, and the exit code."""
    if isinstance(error, _UsageError):
        return usage_message(
            error, words
        ) or f"{error.format_message().rstrip('.')}: see {_help_of(error, words)}", BAD_INPUT
    if isinstance(error, BrickError):
        return str(error), BAD_INPUT
    if isinstance(error, MemoryError):
        return f"not enough memory: {error or 'use smaller inputs'}", FAILED
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and _is_full():  # of help, which typer prints
        return str(_unwritable(error)), BAD_INPUT
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}: check the path and its permissions", BAD_INPUT
    return f"internal error: {type(error).__name__}: {error}: run again with {DEBUG}, and report what it says", FAILED


def _help_of(error: Exception, words: Sequence[str]) -> str:
    context = getattr(error, "ctx", None)
    command = next((f"{PROGRAM} {word}" for word in words[:1] if not word.startswith("-")), PROGRAM)
    return f"{context.command_path if context else command} --help"


def _open_closed_streams() -> None:
    """Points standard streams that the process was started without at the null device, in the order of their numbers:
    no file that is opened later may get one of these."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _drop_output(*streams: int) -> None:
    """Points file descriptors at the null device, so that flushing them at the end raises no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream)
    os.close(null)
