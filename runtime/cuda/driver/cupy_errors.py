"""CuPy's and CUDA's errors as errors of ours."""

from __future__ import annotations

from brickrt.runtime.cuda.driver.cupy_import import FAILURES, cudart, cupy
from brickrt.runtime.cuda.driver.device_errors import DeviceError, NoMemory, in_mib

# numbers that CUDA's two interfaces share
OUT_OF_MEMORY = 2
FATAL = frozenset([214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 999])
"""Errors after which the context is lost: of memory (ECC, NVLink), a time limit, an assertion, addresses, instructions,
a launch that failed, and what CUDA does not know itself."""
GPU = "the GPU"
TOLD = (*FAILURES, cupy.cuda.memory.OutOfMemoryError)


class Telling:
    """Inside of it CUDA's errors become DeviceError; see `device_error`. One object serves any number of calls."""

    def __init__(self, doing: str, purpose: str = "", where: str = GPU) -> None:
        self._doing, self._purpose, self._where = doing, purpose, where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TOLD):
            raise device_error(error, self._doing, self._purpose, self._where) from None


def device_error(error: Exception, doing: str, purpose: str = "", where: str = GPU) -> DeviceError:
    """What to raise for an error of CUDA's, with what was done. `purpose` is what memory was for, where some was taken,
    and `where` it was."""
    status, reason = getattr(error, "status", None), " ".join(str(error).split())
    if status != OUT_OF_MEMORY and not isinstance(error, MemoryError):
        return DeviceError(doing, reason, status in FATAL)
    return NoMemory(doing, where, purpose or doing, _free() if where == GPU else reason)


def taking(nbytes: int, purpose: str) -> Telling:
    """For taking the device's memory."""
    return Telling(f"taking memory for {purpose}", f"the {in_mib(nbytes)} of {purpose}")


def taking_pinned(nbytes: int, purpose: str) -> Telling:
    """For taking pinned memory."""
    return Telling(f"taking pinned memory for {purpose}", f"the {in_mib(nbytes)} of {purpose}", "the host (pinned)")


def _free() -> str:
    """How much of the device's memory nobody has."""
    try:
        free, total = cudart.memGetInfo()
    except FAILURES as e:
        return " ".join(str(e).split())
    return f"{in_mib(free)} of {in_mib(total)} are free"
