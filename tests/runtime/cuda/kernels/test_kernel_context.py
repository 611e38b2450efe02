"""The words of the context are the same in Python and in C++."""

import ctypes
import dataclasses
import subprocess

import numpy as np

from brickrt.runtime import state_words
from brickrt.runtime.cuda.kernels import kernel_context
from brickrt.runtime.cuda.kernels.context_header import _NUMBERS, header
from brickrt.runtime.cuda.kernels.kernel_context import CONTEXT_WORDS, Context, why_stopped
from tests.support.cuda.host_kernels import COMPILER, FLAGS, compiled, needs_compiler

SOURCE = '#include "portable.cuh"\n' + header() + '#include "schedule.cuh"\n'
FIELDS = [f.name for f in dataclasses.fields(Context)]


def numbered():
    return Context(*(1000 + k if k % 2 else (1 << 63) + k for k in range(CONTEXT_WORDS)))


def test_positions_are_those_of_the_packed_words():
    packed = numbered().pack()
    assert packed.dtype == np.int64
    for k, name in enumerate(FIELDS):
        assert Context.position(name) == k
        assert int(packed.view(np.uint64)[k]) == getattr(numbered(), name)


@needs_compiler
def test_the_compiler_reads_every_field_as_it_was_packed():
    fields = ", ".join(f"(unsigned long long)c->{name}" for name in FIELDS)
    library = compiled(
        SOURCE + 'extern "C" void read(const brick::Context* c, unsigned long long* out) '
        f"{{ const unsigned long long v[] = {{{fields}}}; memcpy(out, v, sizeof v); }}"
    )
    read, packed = np.zeros(CONTEXT_WORDS, np.uint64), numbered().pack()
    library.read(packed.ctypes.data_as(ctypes.c_void_p), read.ctypes.data_as(ctypes.c_void_p))
    assert read.tolist() == [getattr(numbered(), name) for name in FIELDS]


def test_the_header_is_written_for_all_compilers():
    """NVRTC 13.0 has no `__builtin_offsetof`."""
    assert "offsetof" not in header()


@needs_compiler
def test_a_field_of_another_size_does_not_compile(tmp_path):
    (tmp_path / "broken.cpp").write_text(SOURCE.replace("const int* deps;", "int deps[3];"))
    words = [str(COMPILER), *FLAGS, "-fsyntax-only", str(tmp_path / "broken.cpp")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode and "static assertion failed" in done.stderr


@needs_compiler
def test_numbers_agree():
    names = list(_NUMBERS)
    state_names = ["NOT_STARTED", "IN_PROGRESS", "COMPLETE"]
    listed = ", ".join(f"brick::{name}" for name in names + state_names)
    library = compiled(
        SOURCE
        + f'extern "C" int number(int k) {{ const int v[] = {{(int){listed.replace(", ", ", (int)")}}}; return v[k]; }}'
    )
    expected = [getattr(kernel_context, n) for n in names] + [getattr(state_words, n) for n in state_names]
    assert [library.number(k) for k in range(len(expected))] == expected


def test_what_the_stop_word_says():
    assert why_stopped(0) is None
    assert why_stopped(kernel_context.CANCELLED) == "cancelled"
    last = kernel_context.MOST_TASKS - 1
    assert why_stopped(kernel_context.HUNG | last << 4 | 7 << 34) == f"task {last} waited in vain for task 7"
    assert why_stopped(kernel_context.HUNG | 7 << 4 | last << 34) == f"task 7 waited in vain for task {last}"
    assert "twice" in str(why_stopped(kernel_context.STARTED_TWICE | 5 << 4))
