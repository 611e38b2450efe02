"""Programs of Python in forks of a server that has imported what they import, which is half of the time of most.

A program finds what it would in a new interpreter: its words, folder, environment, streams and signals. What Python
reads before it imports anything, such as PYTHONPATH, and what memory a program takes, are those of the server.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import TextIOWrapper
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, ForkServerProcess

_environment = dict(os.environ)  # before any test changes it


@cache
def server() -> ForkServerContext:
    """The context of multiprocessing whose processes are forks of the server, which this starts at first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.programs.imported"])
    with mock.patch.dict(os.environ, _environment, clear=True):
        forkserver.ensure_running()
    return context


def run(
    words: Sequence[object],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end: `words` are those behind `python`, either -m with a module or -c with code.

    Raises TimeoutError after `timeout` seconds and, to `check` it, AssertionError with what a program that fails says.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = started(words, (out.fileno(), err.fileno()), folder, env)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{' '.join(map(str, words))}: did not end in {timeout} s")
        told = [TextIOWrapper(file).read() for file in (out, err) if file.seek(0) == 0]
    assert process.exitcode == 0 or not check, told[1]
    return subprocess.CompletedProcess(list(words), process.exitcode, *told)


def started(
    words: Sequence[object],
    streams: Sequence[int],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    terminal: bool = False,
) -> ForkServerProcess:
    """Starts a program that writes to these descriptors, standard output and error, or runs in the terminal that the
    first of them is."""
    sent = [Connection(os.dup(number)) for number in streams]
    begin = _in_terminal if terminal else _with_streams
    given = list(map(str, words)), str(folder or Path.cwd()), dict(env or os.environ)
    process = server().Process(target=_program, args=(begin, sent, *given))
    process.start()
    return process


def listen() -> None:
    """Heeds what ends programs, also where tests run behind a shell's `&` or under `nohup`, which have it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _in_terminal(streams: Sequence[Connection]) -> None:
    os.login_tty(os.dup(streams[0].fileno()))


def _with_streams(streams: Sequence[Connection]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)


def _program(
    begin: Callable[[Sequence[Connection]], None],
    streams: Sequence[Connection],
    words: list[str],
    folder: str,
    env: dict[str, str],
) -> None:
    begin(streams)
    for stream in streams:
        stream.close()
    listen()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.path.insert(0, folder)
    how, what, *rest = words
    sys.argv = [how, *rest]  # what -m runs has its file there
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(what, vars(main))
    finally:
        atexit._run_exitfuncs()
