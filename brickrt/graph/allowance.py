"""What a model may take by itself, on any machine: memory, and time of a run.

A file of a few bytes can ask for all memory that there is, or for years. What the user gives, a model with its weights
and inputs, says how much is meant: each byte allows so many more, and a little of everything is always allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from brickrt.graph.environment_limits import environment_limit
from brickrt.graph.errors import BrickError

MEMORY, SECONDS = "BRICKRT_MEMORY_GIB", "BRICKRT_RUN_SECONDS"
GIB = 1 << 30
LESS_MEMORY = "use smaller shapes, or bands of rows (--max-memory SIZE)"
MULTIPLE = 256
"""Bytes that each byte given allows: an image of one channel, say, as two tensors of 128 channels."""
BYTES_PER_SECOND = 1 << 17
"""Bytes given that allow a run another second: with `FLOPS_PER_SECOND`, 2^20 operations for each byte."""
FLOPS_PER_SECOND = 1 << 37
"""What kernels are taken to compute; a few cores do."""


class Allowance:
    """What may be taken for a model that has so many bytes, `given`, with its inputs.

    `held` are the bytes taken already, `spent` the seconds that nodes on the host have computed in this run.
    """

    def __init__(self, given: int) -> None:
        self.given, self.held, self.spent = given, 0, 0.0
        self.bytes = environment_limit(MEMORY) * GIB + MULTIPLE * given
        self.seconds = environment_limit(SECONDS) + given / BYTES_PER_SECOND

    def has_room(self, nbytes: float) -> bool:
        """Whether so many bytes more may be taken."""
        return self.held + nbytes <= self.bytes

    def require_bytes(self, nbytes: float, what: str) -> None:
        """Raises BrickError where what `what` says in words takes more memory than is left."""
        if not self.has_room(nbytes):
            beside = f" beside {self.held / GIB:.1f} GiB taken before" if self.held > GIB // 16 else ""
            raise BrickError(
                f"{what} takes {nbytes:.0f} bytes ({nbytes / GIB:.1f} GiB){beside}, {self._who()} may take "
                f"{self.bytes / GIB:.1f} GiB: {_remedy(LESS_MEMORY, MEMORY)}"
            )

    def require_seconds(self, seconds: float, what: str) -> None:
        """Raises BrickError where what `what` says in words takes longer than a run may."""
        if self.spent + seconds > self.seconds:
            raise BrickError(
                f"{what} takes about {seconds:.1e} s, a run with {self._who()} may take {self.seconds:.0f} s: "
                f"{_remedy('use smaller shapes', SECONDS)}"
            )

    def check_seconds(self, seconds: float, what: str) -> None:
        """Raises BrickError where the host has computed too long, with so many `seconds` in the node under way."""
        if self.spent + seconds > self.seconds:
            raise BrickError(
                f"{what} is not done after {self.spent + seconds:.0f} s, which are all that a run with {self._who()} "
                f"may take on the host: {_remedy('use fewer rounds', SECONDS)}"
            )

    def _who(self) -> str:
        return f"a model and inputs of {self.given} bytes"


def _remedy(first: str, variable: str) -> str:
    return f"{first}, or set {variable} to more than {environment_limit(variable):g}, or to 0 for no limit"


def given_by(elements: int, itemsize: int) -> int:
    """Bytes that an input counts for: networks compute with numbers of at least 4."""
    return elements * max(4, itemsize)


_current: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


@contextmanager
def allowing(given: int) -> Iterator[None]:
    """Inside, what is made counts against what a model and inputs of so many bytes may take. Inside another: as
    there."""
    if _current.get() is not None:
        yield
        return
    token = _current.set(Allowance(given))
    try:
        yield
    finally:
        _current.reset(token)


def allowance() -> Allowance | None:
    """What this thread may take for the model that it is busy with; None outside."""
    return _current.get()


def hold(nbytes: int) -> None:
    """Counts memory that was taken, and stays so."""
    one = _current.get()
    if one is not None:
        one.held += nbytes


@contextmanager
def held_inside() -> Iterator[None]:
    """What is held inside is given up at the end."""
    one = _current.get()
    before = 0 if one is None else one.held
    try:
        yield
    finally:
        if one is not None:
            one.held = before
