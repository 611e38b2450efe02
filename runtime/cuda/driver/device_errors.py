"""What drivers raise when a call to the device fails."""

from __future__ import annotations

from brickrt.graph.errors import BrickError

FORKED = (
    "this process was forked from one that uses the GPU, which CUDA does not allow: start it by itself, with "
    "multiprocessing by its method 'spawn'"
)
"""The fault of a driver in a child, where it can do nothing."""


class DeviceError(BrickError):
    """A call to the device that failed: what it was `doing`, and the `reason` in CUDA's words, its error's name first.

    `fatal`: a kernel did what is not allowed, and nothing on the device can be used any more in this process. It was an
    earlier launch than the call that noticed it, unless `launch`, an index among those of the program, says which.
    """

    def __init__(self, doing: str, reason: str, fatal: bool = False) -> None:
        super().__init__(f"{doing} failed on the GPU: {reason}")
        self.doing, self.reason, self.fatal = doing, reason, fatal
        self.launch: int | None = None


class NoMemory(DeviceError):
    """Memory ran out: `where` it did, what it was for, and in `reason` how much of it is free."""

    def __init__(self, doing: str, where: str, purpose: str, reason: str) -> None:
        super().__init__(doing, reason)
        self.args = (f"{where} has not enough memory left for {purpose}: {reason}",)


def in_mib(nbytes: int) -> str:
    """A number of bytes, for people."""
    return f"{nbytes / 2**20:.1f} MiB"


def after(fault: str) -> BrickError:
    """What to say of the device after a fault."""
    if fault == FORKED:
        return BrickError(fault)
    return BrickError(f"the GPU took a fault and cannot be used any more in this process: start a new one. {fault}")
