"""Runs the code blocks of a page in order, from the page's folder on: python -m tests.support.programs.run_page PAGE.

Python blocks share their names. Plain commands of brickrt run in forks of what this process is at first. What a shell
has to read, a shell runs.
"""

from __future__ import annotations

import multiprocessing
import re
import shlex
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

FORK = multiprocessing.get_context("fork")
PLAIN = re.compile(r"brickrt( [\w./=,+-]+)+")
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, code and first line of each block that is to be run."""
    text = page.read_text("utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in BLOCK.finditer(text)]


def run(page: Path) -> None:
    asks, theirs = FORK.Pipe()
    server = FORK.Process(target=serve, args=(asks, theirs))
    server.start()
    try:
        run_blocks(page, asks)
    finally:
        asks.close()
        server.join()


def run_blocks(page: Path, asks: Connection) -> None:
    program = sys.modules["program"] = ModuleType("program")
    for language, code, line in blocks(page):
        print(f"--- {page.name}, line {line}", flush=True)
        if language == "bash" and all(map(PLAIN.fullmatch, code.splitlines())):
            for command in code.splitlines():
                asks.send(command)
                if failed := asks.recv():
                    sys.exit(f"{command}: exit code {failed}")
        elif language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
        else:
            exec(compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True), vars(program))


def serve(theirs: Connection, asks: Connection) -> None:
    """Runs commands of brickrt, each in a fork, and answers with its exit code, until nobody asks any more."""
    theirs.close()
    while True:
        try:
            command = FORK.Process(target=_forked, args=(shlex.split(asks.recv()),))
        except EOFError:
            return
        command.start()
        command.join()
        asks.send(command.exitcode)


def _forked(words: list[str]) -> None:
    from brickrt.cli import main

    sys.argv = words
    sys.exit(main())


if __name__ == "__main__":
    run(Path(sys.argv[1]))
