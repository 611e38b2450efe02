"""Runs the code blocks of a page in order: python run_page.py PAGE. Python blocks share their names.

Plain commands of brickrt run in processes that a server forks, which has imported what they import: half of the time of
most. What a shell has to read, a shell runs.
"""

from __future__ import annotations

import multiprocessing
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

SERVER = multiprocessing.get_context("forkserver")
COMMANDS = (
    "brickrt.cli.commands.run",
    "brickrt.cli.outputs.plan_compare",
    "brickrt.cli.commands.tune",
    "llvmlite.binding",
)
PLAIN = re.compile(r"brickrt( [\w./=,+-]+)+")
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, code and first line of each block that is to be run."""
    text = page.read_text("utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in BLOCK.finditer(text)]


def run(page: Path) -> None:
    program = sys.modules["program"] = ModuleType("program")
    for language, code, line in blocks(page):
        print(f"--- {page.name}, line {line}", flush=True)
        if language == "bash" and all(map(PLAIN.fullmatch, code.splitlines())):
            for command in code.splitlines():
                run_command(command)
        elif language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
        else:
            exec(compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True), vars(program))


def run_command(command: str) -> None:
    """Runs a command of brickrt in a fork of the server; SystemExit where it fails."""
    process = SERVER.Process(target=_forked, args=(shlex.split(command),))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{command}: exit code {process.exitcode}")


def _forked(words: list[str]) -> None:
    from brickrt.cli import main

    sys.argv = words
    sys.exit(main())


if __name__ == "__main__":
    SERVER.set_forkserver_preload(list(COMMANDS))
    run(Path(sys.argv[1]))
