"""What blocks do to words that others read too, timed by itself: a thread of each block, again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource

ROUNDS = 2000
THREADS = 32
LINE = 32  # words between those of two blocks
KINDS = {
    "take a ticket": "seen += (unsigned)brick::fetch_add(c->tickets, 1ull);",
    "acquire a task": "seen += brick::compare_and_swap(own, start + k, start + k + 1);",
    "look at a word": "seen += brick::load_acquire(other);",
    "publish a task": "brick::store_release(own, start + k);",
}

_TEXT = """#include "portable.cuh"
struct Words_NAME { unsigned long long* tickets; unsigned* words; };
BRICK_KERNEL(NAME, Words_NAME, THREADS, 1) {
    if (brick::thread()) return;
    unsigned* own = c->words + LINE * brick::block();
    const unsigned* other = c->words + LINE * ((brick::block() + 1) % brick::blocks());
    const unsigned start = *own;
    unsigned seen = 0;
    for (unsigned k = first; k < (unsigned)(first + count); ++k) { WHAT }
    if (seen == 1u + launch + slot) *own = seen + (unsigned)(other - own);
}
"""


def source(what: str) -> KernelSource:
    """A kernel whose blocks do `what` again and again; `what` is a line of C++."""
    name = "atomic_" + hashlib.sha256(what.encode()).hexdigest()[:16]
    text = _TEXT.replace("THREADS", str(THREADS)).replace("LINE", str(LINE)).replace("WHAT", what)
    return KernelSource(name, text.replace("NAME", name), THREADS, 0)


def atomics(driver: Any) -> Iterator[dict[str, Any]]:
    """Nanoseconds of each, of one block alone and with a block on every multiprocessor."""
    with driver.current:
        for kind, what in KINDS.items():
            (function,) = driver.functions([source(what)], None)
            for blocks in (1, driver.spec.cores):
                yield {"what": kind, "blocks": blocks, "ns": 1e9 * _seconds(driver, function, blocks) / ROUNDS}


def _seconds(driver: Any, function: Any, blocks: int) -> float:
    stream, memory = driver.stream(), driver.allocate(256 + 4 * LINE * blocks)  # zeros
    context = np.array([memory.address, memory.address + 256], np.uint64)
    return driver.seconds(lambda: function.launch(blocks, context, (0, ROUNDS, 0, 0), stream, False), stream)
