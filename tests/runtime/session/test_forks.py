"""Forks: a child of a process whose other threads run or compile computes the same bits, and ends."""

from __future__ import annotations

import os

import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.device_errors import FORKED
from brickrt.runtime.cuda.program import CudaProgram
from tests.runtime.cuda.test_faults import made
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.programs import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

LIMIT = 120  # seconds, after which something hangs
BEGINNING = """
import os, signal, sys, threading
import numpy as np
from brickrt.runtime.session.runtime import Runtime
from onnx import TensorProto, helper, numpy_helper

def layers(n):
    nodes = [helper.make_node("Conv", [f"a{k}", "w"], [f"a{k + 1}"], pads=[1, 1, 1, 1]) for k in range(n)]
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    ends = [helper.make_tensor_value_info(a, TensorProto.FLOAT, ["N", 16, 64, 64]) for a in ("a0", f"a{n}")]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph)

def given(batch):
    return {"a0": np.random.default_rng(batch).standard_normal((batch, 16, 64, 64)).astype(np.float32)}

def bits(runtime, x):
    return b"".join(array.tobytes() for array in runtime.execute(x).values())

def child_of(work):
    child = os.fork()
    if child:
        return child
    signal.alarm(40)  # the end of a child that hangs
    sys.exit(0 if work() else 3)

def check(child):
    ended = os.waitpid(child, 0)[1]
    assert ended == 0, f"the child ended with {ended}"

runtime = Runtime(layers(6), device="cpu", threads=2)
x, other = given(1), given(2)
want = bits(runtime, x)
same = lambda: bits(runtime, x) == want
"""
RUNNING = """
def work():
    while not done.is_set():
        assert same()

done = threading.Event()
threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
try:
    for k in range(5):
        done.wait(0.004 * k)
        check(child_of(same))
finally:
    done.set()
    [thread.join() for thread in threads]
assert same()
"""
GRANDCHILD = "check(child_of(lambda: same() and (check(child_of(same)) or same())))\nassert same()"
COMPILING = """
for k in range(2):
    begun = threading.Event()
    runtime = Runtime(layers(6), device="cpu", threads=2, progress=lambda what, done, of: begun.set())
    os.environ["BRICKRT_CACHE_DIR"] = f"{sys.argv[1]}/{k}"  # where nothing is compiled yet
    thread = threading.Thread(target=runtime.execute, args=(x,))
    thread.start()
    begun.wait()
    threading.Event().wait(0.1 * k)
    check(child_of(same))
    thread.join()
"""
WATCHED = """
from brickrt.runtime.events import Afterwards
class Forks(Afterwards):
    child = None
    def began(self, tasks, rows):
        if self.child is None:
            self.child = os.fork()
            signal.alarm(0 if self.child else 40)

observer = Forks(lambda told: None)
runtime = Runtime(layers(6), device="cpu", threads=2, watch=observer)
assert same() and same()
sys.exit(0) if observer.child == 0 else check(observer.child)
"""


@pytest.mark.parametrize("case", ["RUNNING", "GRANDCHILD", "COMPILING", "WATCHED"])
def test_children_compute_the_same(case, tmp_path):
    """In processes that begin without threads: a fork of this one would have its threads' locks. Nothing is kept from
    other tests: where plans are known, what plans may be imported while another thread forks."""
    own = os.environ | {"BRICKRT_CACHE_DIR": str(tmp_path)}
    ran = forks.run(["-c", BEGINNING + globals()[case], tmp_path], env=own, timeout=LIMIT)
    assert ran.returncode == 0, ran.stderr


@needs_compiler
def test_a_gpu_is_refused_in_a_child(monkeypatch, tmp_path):
    """What a child is told before it does anything else, told here while a run holds the locks."""
    use_callbacks(monkeypatch)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    driver = CallbackDriver()
    program = made(driver)
    tasks = program.tasks
    with program._lock, program._cancelling:
        program.after_fork()
        driver.calls.clear()
        program.cancel()
        for use in (lambda: program.run([], []), program.seconds, lambda: CudaProgram(tasks, driver)):
            with pytest.raises(BrickError, match=r"^this process was forked from one that uses the GPU") as told:
                use()
            assert str(told.value) == FORKED
    program.__del__()
    assert not driver.calls
