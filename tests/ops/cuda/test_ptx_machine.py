"""That the machine sees what a GPU would not forgive: each kernel here is wrong, or right by a hair."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels import compile as compiling
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.ptx.build import compiled
from tests.support.ptx.emit import cpp
from tests.support.ptx.operations import Unknown
from tests.support.ptx.parse import parse

pytestmark = needs_compiler

SOURCE = """
#include "mma.cuh"
#define KERNEL(name) extern "C" __global__ void name(float* p, float* q)
using brick::thread;
BRICK_DEVICE float* shared_floats() { BRICK_SHARED(room); return (float*)room; }

KERNEL(vector) { brick::store(q + 4 * thread(), brick::load<4>(p + 4 * thread())); }
KERNEL(one) { q[thread()] = p[thread()]; }
KERNEL(not_written) { q[thread()] = shared_floats()[thread()]; }
KERNEL(beyond_shared) { q[thread()] = shared_floats()[thread() + 1000]; }
KERNEL(said_to_be_global) { *brick::global(thread() ? q + thread() : shared_floats()) = 1; }
KERNEL(constant_and_written) {
    if (thread()) return;
    q[(int)p[0] - 1] = 1;
    q[1] = brick::read_only(q);
}
template <int LEFT> BRICK_DEVICE void copied(float* p, float* q) {
    float* s = shared_floats();
    brick::copy_async16(s + 4 * thread(), p + 4 * thread(), 16);
    brick::copy_commit();
    brick::copy_async16(s + 128 + 4 * thread(), p + 4 * thread(), 4);
    brick::copy_commit();
    brick::copy_wait<LEFT>();
    brick::sync();
    for (int k = 0; k < 8; ++k) q[thread() + 32 * k] = s[(thread() + 32 * k) ^ 4];
}
KERNEL(copied_all) { copied<0>(p, q); }
KERNEL(copied_one) { copied<1>(p, q); }
KERNEL(copied_none) { copied<2>(p, q); }
KERNEL(parted_barrier) {
    if (thread() < 16) brick::sync();
    q[thread()] = 1;
}
template <class Look> BRICK_DEVICE void told(float* p, float* q, Look look) {
    unsigned* flag = (unsigned*)q + 128;
    if (brick::block() == 0) {
        q[thread()] = 7;
        brick::sync();
        if (thread() == 0) brick::store_release(flag, 1u);
    } else {
        while (!look(flag)) brick::nanosleep(32);
        brick::sync();
        q[thread() + 32] = q[31 - thread()];
    }
}
KERNEL(told_and_acquired) { told(p, q, [](const unsigned* f) { return brick::load_acquire(f); }); }
KERNEL(told_and_not_acquired) { told(p, q, [](const unsigned* f) { return brick::load_relaxed(f); }); }
template <class Between> BRICK_DEVICE void shown(float* p, float* q, int other, Between between) {
    float* s = shared_floats();
    s[thread()] = p[thread()];
    between();
    q[thread()] = s[thread() ^ other];
}
KERNEL(shown_by_nothing) { shown(p, q, 32, [] { brick::warp_sync(); }); }
KERNEL(shown_by_a_vote) { shown(p, q, 1, [] { brick::ballot(true); }); }
KERNEL(shown_to_the_warp) { shown(p, q, 1, [] { brick::warp_sync(); }); }
KERNEL(shown_to_all) { shown(p, q, 32, [] { brick::sync(); }); }
KERNEL(written_too_early) {
    shown(p, q, 32, [] { brick::sync(); });
    shared_floats()[thread()] = 0;
}
KERNEL(copied_too_early) {
    shown(p, q, 32, [] { brick::sync(); });
    brick::copy_async16(shared_floats() + 4 * thread(), p, 16);
}
KERNEL(product) {
    const unsigned word = __float_as_uint(p[0]), a[4] = {word, word, word, word}, b[2] = {word, word};
    float sum[4] = {0, 0, 0, 0};
    brick::mma<float>(sum, a, b);
    for (int k = 0; k < 4; ++k) q[thread() * 4 + k] = sum[k];
}
KERNEL(product_of_parted_lanes) {
    float a = p[0];
    if (thread() > 3) do a *= q[0]; while (a != 0);
    if (q[1] == 0) brick::warp_sync();
    const unsigned word = __float_as_uint(a), left[4] = {word, word, word, word}, right[2] = {word, word};
    float sum[4] = {0, 0, 0, 0};
    brick::mma<float>(sum, left, right);
    q[thread() * 4] = sum[0];
}
KERNEL(matrices) {
    unsigned v[4];
    brick::load_matrices(v, shared_floats() + thread() * (int)p[0]);
    q[thread()] = v[0] + v[1] + v[2] + v[3];
}
"""


@pytest.fixture(scope="module")
def library():
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))
    return compiled(SOURCE, "sm_90")


class Arrays:
    """p [256] and q [256], beside each other; kernels may touch `given` bytes of each."""

    def __init__(self, library, given=1024, off=0):
        self.room = np.zeros(1024, np.float32)
        start = -self.room.ctypes.data % 64 // 4 + off
        self.p, self.q = self.room[start : start + 256], self.room[start + 512 : start + 768]
        self.p[:] = np.arange(256) + 1
        self.library, self.given = library, given

    def run(self, name, threads=32, blocks=1, shared=1024):
        known = [(a.ctypes.data, self.given) for a in (self.p, self.q)]
        kernel = self.library.kernel(name, lambda *_: known)
        kernel(
            blocks, threads, ctypes.c_longlong(shared), *(ctypes.c_longlong(a.ctypes.data) for a in (self.p, self.q)), 1
        )
        return self.q


def death(arrays, name, threads=32, blocks=1):
    """What the machine says before it ends the process; a child of this one."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.dup2(into, 2)
        arrays.run(name, threads, blocks)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as told:
        text = told.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT, text
    return text


def test_vectors_are_aligned(library):
    np.testing.assert_array_equal(Arrays(library).run("vector")[:128], np.arange(128) + 1)
    assert "ld.global.v4.f32" in (text := death(Arrays(library, off=1), "vector")) and "not aligned" in text


def test_accesses_stay_in_allocations(library):
    Arrays(library, given=128).run("one")
    assert "outside of all allocations" in death(Arrays(library, given=124), "one")
    assert "outside of shared memory" in death(Arrays(library), "beyond_shared")


def test_shared_memory_is_not_global(library):
    assert "outside of all allocations" in death(Arrays(library), "said_to_be_global")


def test_shared_memory_begins_as_garbage(library):
    assert np.isnan(Arrays(library).run("not_written")[:32]).all()


def test_memory_read_as_constant_is_not_written(library):
    assert "constant and written" in death(Arrays(library), "constant_and_written")


def test_copies_arrive_when_they_are_waited_for(library):
    """What is copied last has zeros in three of four places."""
    p = np.arange(128) + 1.0
    first, last = (
        p.reshape(-1, 2, 4)[:, ::-1].ravel(),
        (p * (np.arange(128) % 4 == 0)).reshape(-1, 2, 4)[:, ::-1].ravel(),
    )
    found = Arrays(library).run("copied_all")
    np.testing.assert_array_equal(found, [*first, *last])
    found = Arrays(library).run("copied_one")
    np.testing.assert_array_equal(found[:128], first)
    assert np.isnan(found[128:]).all()
    assert np.isnan(Arrays(library).run("copied_none")).all()


def test_what_threads_show_each_other_is_behind_a_barrier(library):
    np.testing.assert_array_equal(Arrays(library).run("shown_to_all", 64)[:64], (np.arange(64) ^ 32) + 1)
    np.testing.assert_array_equal(Arrays(library).run("shown_to_the_warp", 64)[:64], (np.arange(64) ^ 1) + 1)
    for name in ("shown_by_nothing", "shown_by_a_vote", "written_too_early", "copied_too_early"):
        assert "no barrier" in death(Arrays(library), name, 64)


def test_what_blocks_show_each_other_is_acquired(library):
    np.testing.assert_array_equal(Arrays(library).run("told_and_acquired", 32, 2)[32:64], 7)
    assert "nothing orders this" in death(Arrays(library), "told_and_not_acquired", 32, 2)


def test_factors_are_rounded(library):
    arrays = Arrays(library)
    arrays.p[0] = 1.5
    np.testing.assert_array_equal(arrays.run("product")[:128], 8 * 1.5**2)
    arrays.p[0] = 1.1
    assert "not rounded" in death(arrays, "product")


def test_lanes_are_together_where_they_multiply(library):
    arrays = Arrays(library)
    np.testing.assert_array_equal(arrays.run("product_of_parted_lanes")[:16:4], [8, 0, 0, 0])
    arrays.q[:2] = 0, 1
    assert "no barrier after a branch" in death(arrays, "product_of_parted_lanes")


def test_threads_that_do_not_meet(library):
    assert "different barriers" in death(Arrays(library), "parted_barrier")


def test_rows_of_matrices_are_aligned(library):
    arrays = Arrays(library)
    arrays.p[0] = 2
    assert "ldmatrix" in (text := death(arrays, "matrices")) and "not aligned" in text


def test_instructions_that_are_not_known_are_named():
    with pytest.raises(Unknown, match=r"tex\.2d\.v4\.f32"):
        cpp(parse(".entry k()\n{ .reg .b32 %r<3>; tex.2d.v4.f32 %r1, %r2, %r2, %r2; ret; }"))
    with pytest.raises(Unknown, match=r"fma\.rn\.relu\.f16"):
        cpp(parse(".entry k()\n{ .reg .b16 %r<3>; fma.rn.relu.f16 %r1, %r2, %r2, %r2; ret; }"))
