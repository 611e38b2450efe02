"""Runs the code blocks of a page in order: python run_page.py PAGE. Python blocks share their names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, code and first line of each block that is to be run."""
    text = page.read_text("utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in BLOCK.finditer(text)]


def run(page: Path) -> None:
    program = sys.modules["program"] = ModuleType("program")
    for language, code, line in blocks(page):
        print(f"--- {page.name}, line {line}", flush=True)
        if language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
        else:
            exec(compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True), vars(program))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
