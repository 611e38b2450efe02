"""Accesses that a GPU refuses and the host does not: vectors that are not aligned, indices beyond arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda.host_kernels import COMPILER, HEADERS, HOST, needs_compiler

pytestmark = needs_compiler

PROGRAM = """
#include "portable.cuh"
struct Words { float* at; };
BRICK_KERNEL(touch, Words, 32, 1) {
    BRICK_SHARED(shared);
    const float* p = c->at + first;
    if (count == 0) brick::store(shared, brick::load<4>(p));
    if (count == 1) brick::store(const_cast<float*>(p), brick::Vector<float, 2>{});
    if (count == 2) brick::copy_async16(shared, p, 4);
    if (count == 3) brick::copy_async16(shared + 4, c->at, 16);
}
int main(int, char** argv) {
    alignas(16) static float room[64];
    const Words words{room};
    touch(1, 32, 256, &words, atoi(argv[1]), atoi(argv[2]), 0, 0, 1);
}
"""
KERNELS = [
    "tests/runtime/cuda/groups/test_random_boxes.py",
    "tests/runtime/cuda/test_networks.py::test_network[nafnet-padded-graph]",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alignment")
    (folder / "touch.cpp").write_text(PROGRAM.replace("brick::store(shared, ", "brick::store((float*)shared, "))
    words = [str(COMPILER), "-std=c++17", "-DBRICK_HOST", f"-I{HEADERS}", f"-I{HOST}", "-pthread"]
    subprocess.run([*words, "-o", str(folder / "touch"), str(folder / "touch.cpp")], check=True)
    return folder / "touch"


@pytest.mark.parametrize(
    ("way", "offset", "good"),
    [(0, 4, True), (0, 2, False), (1, 2, True), (1, 1, False), (2, 4, True), (2, 1, False), (3, 0, False)],
)
def test_vectors_and_copies(program, way, offset, good):
    done = subprocess.run([program, str(offset), str(way)], capture_output=True, text=True)
    assert (done.returncode == 0) == good
    assert good or "is not aligned" in done.stderr


def test_kernels_under_the_sanitizer():
    """Each of these is a process's own, since what is found ends it."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *KERNELS]
    environment = os.environ | {"BRICKRT_TEST_SANITIZE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
