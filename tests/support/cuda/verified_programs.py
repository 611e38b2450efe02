"""Has every program verified that is built in a process that imports this, before its kernels run."""

from __future__ import annotations

from brickrt.runtime.cuda import program
from brickrt.runtime.cuda.blueprint import Blueprint
from tests.support.verify.expected import verify_program

_check_tables = program.check_tables


def _verify_tables(blueprint: Blueprint) -> None:
    """What the build checks, and all the rest."""
    _check_tables(blueprint)
    verify_program(blueprint)


program.check_tables = _verify_tables
