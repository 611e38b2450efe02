"""Does the machine have what the engine needs? Packages, driver, kernels, capture, cuDNN, clocks and ceilings.

    python -m bench.gpu.asks.probes

Each probe asks one thing by itself, in the order in which the engine needs them, so that the first that fails says what
to mend. None takes more than a few seconds.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from bench.gpu.support.common import engine, gpu_text
from bench.gpu.support.items import Item, NotInstalled, options, run
from brickrt.runtime.cuda.kernels.compile import compile_module, compiler_version
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource

PACKAGES = (
    "numpy", "onnx", "ml_dtypes", "networkx", "platformdirs", "llvmlite", "typer", "rich", "cuda.bindings.nvrtc",
    "cupy", "cudnn", "torch", "jax",
)  # fmt: skip
FILL = """#include "portable.cuh"
struct Fill { unsigned* at; unsigned* seen; int count; };
BRICK_KERNEL(fill, Fill, 128, 1) {
    for (int k = brick::block() * 128 + brick::thread(); k < c->count; k += brick::blocks() * 128) c->at[k] = first + k;
    if (brick::block() == 0 && brick::thread() == 0) *c->seen = count;
}
"""
FILLED_WORDS = 1 << 16
COPIED = 1 << 30  # bytes
SIDE = 8192  # of the square matrices whose product is timed


def packages() -> Iterator[Item]:
    """Imports, one by one."""

    def ask(name: str) -> dict[str, Any]:
        module = importlib.import_module(name)
        return {"version": str(getattr(module, "__version__", "?")), "file": str(getattr(module, "__file__", "?"))}

    yield from (Item(f"import {name}", partial(ask, name)) for name in PACKAGES)


def compiler() -> dict[str, Any]:
    """Compiles a kernel that is in no cache."""
    text = FILL + f"// {time.time_ns()}\n"
    return {"nvrtc": compiler_version(), "bytes": len(compile_module(text, engine("cuda").spec.isa).image)}


@cache
def driver() -> Any:
    """The engine's driver."""
    return engine("cuda").arrays


def described() -> dict[str, Any]:
    """What the engine knows of the device."""
    return {"gpu": gpu_text(), "spec": driver().spec.to_dict(), "capability": driver().spec.isa}


def kernel() -> dict[str, Any]:
    """A kernel writes numbers, and one word of pinned memory."""
    return _filled(lambda launch, main: launch(main, False))


def together() -> dict[str, Any]:
    """A launch whose blocks must all run at once."""
    return _filled(lambda launch, main: launch(main, True))


def captured(cooperative: bool) -> dict[str, Any]:
    """A launch inside a captured graph."""

    def start(launch: Callable[[Any, bool], None], main: Any) -> None:
        with driver().capture(main) as graph:
            launch(main, cooperative)
        graph().launch(main)

    return _filled(start)


def _filled(start: Callable[[Callable[[Any, bool], None], Any], None]) -> dict[str, Any]:
    with driver().current:
        main = driver().stream()
        (function,) = driver().functions([KernelSource("fill", FILL, 128, 0)], None)
        memory, pinned = driver().allocate(4 * FILLED_WORDS), driver().pinned(8)
        context = np.array([memory.address, pinned.address, FILLED_WORDS], np.uint64)
        start(lambda stream, at_once: function.launch(64, context, (7, 9, 0, 0), stream, at_once), main)
        found = np.zeros(FILLED_WORDS, np.uint32)
        driver().download(found, memory.address, main)
        main.synchronize()
        good = bool((found == np.arange(7, FILLED_WORDS + 7)).all()) and int(pinned.array.view(np.uint32)[0]) == 9
        return {"good": good, "resident": function.resident}


def library(precision: str) -> dict[str, Any]:
    """One convolution by cuDNN in a precision, by the engine, launched in a captured graph."""
    from bench.gpu.asks.check import convolution_error

    cudnn_version()
    return convolution_error(precision)


def cudnn_version() -> dict[str, Any]:
    """cuDNN as the engine finds it."""
    found = driver().library()
    if found is None:
        raise NotInstalled(driver().no_library)
    return {"cudnn": found.version}


def clocks() -> dict[str, Any]:
    """Clocks, power and temperature, as the driver's tool tells."""
    asked = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,utilization.gpu"
    words = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    except FileNotFoundError:
        raise NotInstalled("nvidia-smi is not installed") from None
    return dict(zip(asked.split(","), done.stdout.strip().split(", ")))


def copies() -> dict[str, Any]:
    """Bytes a second of a copy on the device, read and written ones."""
    import cupy

    with driver().current:
        a, b, stream = cupy.zeros(COPIED, np.uint8), cupy.empty(COPIED, np.uint8), driver().stream()
        copy = partial(cupy.cuda.runtime.memcpyAsync, b.data.ptr, a.data.ptr, COPIED, 3, stream.address)
        return {"gb_per_s": 2 * COPIED / driver().seconds(copy, stream) / 1e9}


def products(dtype: str) -> dict[str, Any]:
    """Operations a second of a large product of matrices by cuBLAS, on random numbers."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float32)
    a, b = (torch.randn(SIDE, SIDE, device="cuda").to(kind) for _ in range(2))
    times = []
    for _ in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return {"tflops": 2 * SIDE**3 / min(times[1:]) / 1e12}


def items(null: bool) -> Iterator[Item]:
    """All probes; a device that does nothing has only packages."""
    yield from packages()
    probes: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "compiler": compiler,
        "driver": described,
        "kernel and pinned memory": kernel,
        "cooperative launch": together,
        "captured launch": partial(captured, False),
        "captured cooperative launch": partial(captured, True),
        "cudnn": cudnn_version,
        **{f"convolution by cudnn, {p}": partial(library, p) for p in ("fp32", "tf32", "fp16", "bf16")},
        "clocks": clocks,
        "copy": copies,
        **{f"product of matrices, {p}": partial(products, p) for p in ("fp32", "tf32", "fp16", "bf16")},
        "clocks after work": clocks,
    }
    yield from (Item(name, _no_device if null else ask) for name, ask in probes.items())


def _no_device() -> Mapping[str, Any]:
    raise NotInstalled("a device that does nothing was asked for")


def main() -> int:
    """Asks all probes."""
    asked = options(__doc__).parse_args()
    return run(items(asked.device != "cuda"), asked)


if __name__ == "__main__":
    sys.exit(main())
