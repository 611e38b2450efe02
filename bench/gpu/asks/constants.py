"""What the cost model assumes of a GPU, measured: how fast its memories are, what launches and fused bricks take.

    python -m bench.gpu.asks.constants

A line has the figures of the model by name: what it assumes (`nominal`), and what was measured. `bench.gpu.constants`
prints what to write in place of what.

shared, l2, memory: GB/s of copies, read and written bytes. launch: microseconds of one of many launches in a graph that
each wait for the one before. bricks: microseconds to begin and end a fused brick, and of each further step of it, from
chains of pools whose bricks have hardly anything to compute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench.gpu.support.common import engine
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs
from brickrt.plan.cost.constants import FUSED_TASK_US
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.engines import Engine

THREADS, PIECES, WORDS = 256, 8, 4  # of a block; that a thread copies together: vectors of so many floats, or words
ROUNDS = 2000  # of copies in shared memory
SWEPT = 1 << 31  # bytes that copies of memory that L2 holds read and write, at least
BEYOND_L2_BYTES = 1 << 29
LAUNCHES = 64
CHAINS = 2, 6  # pools of a chain
SIZE, EDGE, CHANNELS = 768, 4, 8

EMPTY = """#include "portable.cuh"
struct Nothing { long long none; };
BRICK_KERNEL(nothing, Nothing, 256, 1) {}
"""
# Threads take turns with a neighbour's vectors: what a thread stores, another loads.
SHARED = """#include "portable.cuh"
struct Numbers { float* seen; };
BRICK_KERNEL(copy_shared, Numbers, 256, 1) {
    BRICK_SHARED(shared);
    using Four = brick::Vector<float, 4>;
    const int mine = brick::thread() * 4, other = (brick::thread() ^ 1) * 4;
    float *from = reinterpret_cast<float*>(shared), *to = from + PIECES * 1024;
    for (int k = 0; k < PIECES; ++k)
        for (int v = 0; v < 4; ++v) from[k * 1024 + mine + v] = brick::thread();
#pragma unroll 1
    for (int round = 0; round < count; ++round) {
        brick::sync();
        Four v[PIECES];
#pragma unroll
        for (int k = 0; k < PIECES; ++k) v[k] = brick::load<4>(from + k * 1024 + other);
#pragma unroll
        for (int k = 0; k < PIECES; ++k) brick::store(to + k * 1024 + mine, v[k]);
        float* const next = from;
        from = to, to = next;
    }
    brick::sync();
    float sum = 0;
    for (int k = 0; k < PIECES; ++k) sum += from[k * 1024 + mine];
    c->seen[brick::block() * 256 + brick::thread()] = sum;
}
""".replace("PIECES", str(PIECES))
# Each block copies a part of its own, `count` times; loads look past the cache of the multiprocessor.
GLOBAL = """#include "portable.cuh"
struct Parts { const unsigned long long* from; unsigned long long* to; long long words; };
BRICK_KERNEL(copy_global, Parts, 256, 1) {
    const unsigned long long* const from = c->from + c->words * brick::block() + brick::thread();
    unsigned long long* const to = c->to + c->words * brick::block() + brick::thread();
#pragma unroll 1
    for (int round = 0; round < count; ++round)
#pragma unroll 1
        for (long long k = 0; k < c->words; k += PIECES * 256) {
            unsigned long long v[PIECES];
#pragma unroll
            for (int i = 0; i < PIECES; ++i) v[i] = brick::load_relaxed(from + k + i * 256);
#pragma unroll
            for (int i = 0; i < PIECES; ++i) to[k + i * 256] = v[i];
        }
}
""".replace("PIECES", str(PIECES))


@dataclass(frozen=True)
class Copied:
    """The memory that a probe wrote, and GB/s."""

    memory: Any
    gb_per_s: float


def copy_shared(driver: Any, rounds: int = ROUNDS) -> Copied:
    """Copies in the shared memory of all multiprocessors; each thread leaves the sum of its vectors' first elements."""
    shared = 2 * PIECES * THREADS * 16
    (function,) = driver.functions([KernelSource("copy_shared", SHARED, THREADS, shared)], None)
    blocks = max(1, function.resident) * driver.spec.cores
    memory, stream = driver.allocate(4 * THREADS * blocks), driver.stream()
    context = np.array([memory.address], np.uint64)
    seconds = driver.seconds(lambda: function.launch(blocks, context, (0, rounds, 0, 0), stream, False), stream)
    return Copied(memory, _gb(blocks * rounds * shared, seconds))


def copy_global(driver: Any, nbytes: int, swept: int = SWEPT) -> Copied:
    """Copies of about so many bytes of global memory, again and again until `swept` bytes were read and written."""
    (function,) = driver.functions([KernelSource("copy_global", GLOBAL, THREADS, 0)], None)
    blocks, part = max(1, function.resident) * driver.spec.cores, 8 * PIECES * THREADS
    each = -(-nbytes // (blocks * part)) * part
    rounds = -(-swept // (2 * blocks * each))
    source, memory, stream = driver.allocate(each * blocks), driver.allocate(each * blocks), driver.stream()
    driver.upload(source.address, np.arange(each * blocks // 8, dtype=np.uint64), stream)
    context = np.array([source.address, memory.address, each // 8], np.uint64)
    seconds = driver.seconds(lambda: function.launch(blocks, context, (0, rounds, 0, 0), stream, False), stream)
    return Copied(memory, _gb(2 * rounds * blocks * each, seconds))


def _gb(nbytes: float, seconds: float) -> float:
    return nbytes / seconds / 1e9 if seconds else 0.0


def launch_us(driver: Any, launches: int = LAUNCHES) -> float:
    """Microseconds of a launch of a graph, of a block on each multiprocessor, that waits for the one before."""
    (function,) = driver.functions([KernelSource("nothing", EMPTY, THREADS, 0)], None)
    stream, context = driver.stream(), np.zeros(1, np.uint64)
    with driver.capture(stream) as captured:
        for _ in range(launches):
            function.launch(driver.spec.cores, context, (0, 0, 0, 0), stream, False)
    graph = captured()
    return 1e6 * driver.seconds(lambda: graph.launch(stream), stream) / launches  # type: ignore[no-any-return]


def pools(count: int) -> onnx.ModelProto:
    """A chain of pools of 3×3 that keep the size."""
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    how = {"kernel_shape": [3, 3], "pads": [1] * 4}
    nodes = [helper.make_node("MaxPool", [names[k]], [names[k + 1]], **how) for k in range(count)]
    shape = [1, CHANNELS, SIZE, SIZE]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "pools", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@dataclass(frozen=True)
class Chain:
    """The steps of a fused brick of a chain, and microseconds that a block takes for one."""

    steps: int
    us: float


def chain_of(on: Engine, count: int) -> Chain:
    """A chain of so many pools, timed as one fused kernel; two more steps reorder its input and its output."""
    programs = Programs(on, pools(count))
    (subgraph,) = (plan := programs.plan(PlanOptions("fused", EDGE))).subgraphs
    program = programs.program(plan)
    return Chain(len(subgraph.nodes), 1e6 * program.seconds() * program.threads / subgraph.bricks)


def bricks(on: Engine) -> dict[str, Any]:
    """The line through the times of two chains: what a brick takes without steps, and each step."""
    few, many = (chain_of(on, count) for count in CHAINS)
    step = (many.us - few.us) / (many.steps - few.steps)
    return {
        "FUSED_TASK_US": _both(FUSED_TASK_US, few.us - few.steps * step),
        "call_overhead_us": _both(on.spec.call_overhead_us, step),
        "brick_us": {str(chain.steps): chain.us for chain in (few, many)},
    }


def _both(nominal: float, measured: float) -> dict[str, float]:
    return {"nominal": nominal, "measured": measured}


def speed(on: Engine, level: str) -> Mapping[str, Any]:
    """The bandwidth of a level of memory."""
    driver = on.arrays
    assert driver is not None
    last = on.spec.shared[1]
    with driver.current:  # type: ignore[attr-defined]
        found = (
            copy_shared(driver)
            if level == "shared"
            else copy_global(driver, BEYOND_L2_BYTES if level == "memory" else last // 4)
        )
    return {f"bandwidth {level}": _both(on.spec.bandwidth[level], found.gb_per_s)}


def launches(on: Engine) -> Mapping[str, Any]:
    """What a launch takes that waits for another."""
    driver: Any = on.arrays
    with driver.current:
        return {"task_overhead_us": _both(on.spec.task_overhead_us, launch_us(driver))}


def items(device: str) -> Iterator[Item]:
    """All probes."""
    on = engine(device, "graph", library=False)
    for level in ("shared", "l2", "memory"):
        yield Item(f"{level} copy", partial(speed, on, level))
    yield Item("dependent launches", partial(launches, on))
    yield Item("fused bricks", partial(bricks, on))


def main() -> int:
    """Asks all probes."""
    asked = options(__doc__).parse_args()
    return run(items(asked.device), asked)


if __name__ == "__main__":
    sys.exit(main())
