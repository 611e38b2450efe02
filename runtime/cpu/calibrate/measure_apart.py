"""Measures the host in a process of its own, which takes its memory along when it ends.

Measuring takes buffers of several times the last cache, and the compiler: some 50 MiB would stay in a process that has
promised how much memory it takes.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress

from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.cpu.calibrate.measured import Measured

MOST_SECONDS = 60.0  # of which a machine that is busy takes a few


def measure_apart(spec: DeviceSpec) -> Measured:
    """What `microbenchmarks.measure` finds in another process; here, where none can be had."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    if sys.executable:
        with suppress(OSError, subprocess.SubprocessError, EOFError, pickle.UnpicklingError):
            ran = subprocess.run(
                [sys.executable, "-c", code],
                input=pickle.dumps(spec),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=MOST_SECONDS,
                check=True,
            )
            found = pickle.loads(ran.stdout)
            if isinstance(found, Measured):
                return found
    return _measure(spec)


def _measure(spec: DeviceSpec) -> Measured:
    from brickrt.runtime.cpu.calibrate.microbenchmarks import measure  # here, so that kept figures load no compiler

    return measure(spec)


def serve() -> None:
    """Measures the device that standard input has, for standard output."""
    pickle.dump(_measure(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
