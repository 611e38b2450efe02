"""Models from compiled files: the bits of the model compiled in this process, for any threads and target; what they
need of Python; and what a file is refused for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from brickrt import CompiledModel, Runtime
from brickrt.graph.errors import BrickError
from brickrt.onnxruntime import InferenceSession
from brickrt.plan.device.machine import instruction_set
from brickrt.runtime.compiled import compiled_model
from brickrt.runtime.compiled.compiled_file import PREFIX, OpenedFile, checksum, is_compiled
from brickrt.runtime.compiled.processor import extensions, machine
from tests.runtime.compiled.networks import compiled, network, sample
from tests.support.graphs.onnx_models import model, node, tensor

pytestmark = pytest.mark.skipif(machine() != "x86_64 Linux", reason="compiled files are for x86-64 on Linux")


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("compiled") / "model.brick", network())


@pytest.fixture(scope="module")
def wanted() -> dict[str, np.ndarray]:
    return Runtime(network(), device="cpu", threads=1).execute({"x": sample()})


def same(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return list(got) == list(wanted) and all(np.array_equal(got[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_bits_are_those_of_the_model(file, wanted, threads):
    with CompiledModel(file, threads=threads) as opened:
        for _ in range(4):  # constants move after the second run
            assert same(opened.execute({"x": sample()}), wanted)
        assert {name: info.shape for name, info in opened.inputs.items()} == {"x": (2, 3, 9, 10)}
        assert list(opened.outputs) == ["y", "a"]
    with pytest.raises(BrickError, match="is closed: open it again"):
        opened.execute({"x": sample()})


def test_constants_move_between_runs(file, wanted):
    opened = CompiledModel(file, threads=1)
    before = [array.ctypes.data for array in opened.program.constants]
    opened.execute({"x": sample()})
    assert [array.ctypes.data for array in opened.program.constants] == before
    opened.execute({"x": sample()})
    until = time.monotonic() + 60
    while [array.ctypes.data for array in opened.program.constants] == before and time.monotonic() < until:
        time.sleep(0.01)
    assert [array.ctypes.data for array in opened.program.constants] != before
    assert same(opened.execute({"x": sample()}), wanted)


def test_arrays_of_the_caller(file, wanted):
    opened, y = CompiledModel(file), np.empty_like(wanted["y"])
    got = opened.execute({"x": sample()}, outputs={"y": y})
    assert got["y"] is y and same(got, wanted)
    for message, inputs, outputs in (
        ("input 'x' has 3 dimensions", {"x": sample()[0]}, None),
        ("dimension 2 must be 9", {"x": sample()[:, :, :-1]}, None),
        ("input 'x' is float64, the model takes float32", {"x": sample().astype("f8")}, None),
        ("is missing: give an array for it", {}, None),
        ("inputs are a list: give them by name", [sample()], None),
        ("output 'y' is float32.1.", {"x": sample()}, {"y": np.zeros(1, np.float32)}),
    ):
        with pytest.raises(BrickError, match=message):
            opened.execute(inputs, outputs=outputs)


def test_a_process_needs_neither_a_compiler_nor_onnx(file, wanted, tmp_path):
    np.save(tmp_path / "x.npy", sample())
    code = (
        "import json, sys; sys.path[:] = " + repr(sys.path) + "\n"
        "import numpy as np\n"
        "from brickrt import CompiledModel\n"
        f"model = CompiledModel({str(file)!r}, threads=2)\n"
        "y = model.execute({'x': np.load('x.npy')})['y']\n"
        "np.save('y.npy', y)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"llvmlite", "onnx", "networkx", "google", "tempfile"} & set(json.loads(done.stdout)) == set()
    assert np.array_equal(np.load(tmp_path / "y.npy"), wanted["y"])


@pytest.mark.parametrize("how", ["Runtime", "brickrt run"])
def test_no_planner_is_imported_for_a_file(file, tmp_path, how):
    """Nor LLVM, nor ONNX's reference, nor what goes band by band or draws: that takes longer than the file does."""
    np.save(tmp_path / "x.npy", sample())
    runs = {
        "Runtime": f"brickrt.Runtime({str(file)!r}).execute({{'x': np.load('x.npy')}})\n",
        "brickrt run": f"main(['run', {str(file)!r}, '--input', 'x.npy'])\n",
    }
    code = (
        "import sys; sys.path[:] = " + repr(sys.path) + "\n"
        "import brickrt, numpy as np\n"
        + ("from brickrt.cli.entry import main\n" if how == "brickrt run" else "")
        + runs[how]
        + "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    loaded = set(done.stderr.split())
    assert done.returncode == 0 and "brickrt.runtime.session.runtime" in loaded, done.stderr
    heavy = {
        *("llvmlite", "onnx.reference", "brickrt.graph.specialize.specialize", "brickrt.graph.builders"),
        *("brickrt.plan.cost.cost_model", "brickrt.plan.merging", "brickrt.runtime.lowering.lower"),
        *("brickrt.runtime.stream", "brickrt.runtime.cpu.program", "brickrt.dashboard.live.dashboard"),
    }
    assert loaded & heavy == set()


def test_runtimes_and_sessions_take_a_file(file, wanted, tmp_path):
    with Runtime(file, threads=2) as runtime:
        for _ in range(2):
            assert same(runtime.execute({"x": sample()}), wanted)
        assert runtime.device == "cpu" and runtime.stats.tasks > 0 and runtime.plan.peak_bytes > 0
        with pytest.raises(BrickError, match="is compiled, and runs only whole"):
            runtime.stream(sample(), {"y": tmp_path / "y.npy", "a": tmp_path / "a.npy"})
    session = InferenceSession(file)
    assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [("x", [2, 3, 9, 10], "tensor(float)")]
    assert np.array_equal(session.run(["y"], {"x": sample()})[0], wanted["y"])
    for options, message in (
        ({"strategy": "padded"}, "strategy 'padded' cannot be chosen now"),
        ({"device": "reference"}, "device 'reference' cannot be chosen now"),
        ({"exact": True}, "exact True cannot be chosen now"),
    ):
        with pytest.raises(BrickError, match=message):
            Runtime(file, **options)


@pytest.mark.skipif(instruction_set() not in ("avx2", "avx512"), reason="this processor has no AVX2")
@pytest.mark.parametrize("target", ["avx2", "generic"])
def test_targets(target, tmp_path):
    file = compiled(tmp_path / "lesser", network(), target=target)  # the name need not end in .brick
    assert is_compiled(file)
    wanted = Runtime(network(), device="cpu", isa=target, threads=1).execute({"x": sample()})
    with CompiledModel(file) as opened:
        assert set(opened.header.needs) <= extensions() and opened.header.target == target
        assert same(opened.execute({"x": sample()}), wanted)


def test_functions_of_the_c_library_are_found(tmp_path):
    proto = model([node("Sin", "x", "y")], [tensor("x", (5,))])
    file, x = compiled(tmp_path / "sin.brick", proto), np.linspace(-3, 3, 5, dtype=np.float32)
    with CompiledModel(file) as opened:
        assert "sinf" in {one.symbol for one in opened.header.code.imports}
        assert same(opened.execute({"x": x}), Runtime(proto, device="cpu").execute({"x": x}))


def test_open_dimensions_are_given(tmp_path):
    file = compiled(tmp_path / "free.brick", network("N"), shapes={"x": (2, 3, 9, 10)})
    assert CompiledModel(file).inputs["x"].shape == (2, 3, 9, 10)
    with pytest.raises(BrickError, match=r"input 'x' has open dimensions: give --shape x="):
        compiled(tmp_path / "free.brick", network("N"))


# ---- what is refused


def refused(path: Path) -> str:
    with pytest.raises(BrickError) as caught:
        CompiledModel(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def test_files_that_are_torn_or_changed(file, tmp_path):
    content, path = file.read_bytes(), tmp_path / "changed.brick"
    for length in (0, 5, PREFIX - 1, PREFIX + 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert "is cut off" in refused(path) or (length < 8 and "is no compiled model" in refused(path))
    path.write_bytes(content + b"\0")
    assert "longer than it was written" in refused(path)
    with OpenedFile(file) as opened:
        start, sections = opened._start, opened._sections
    places = [start + s.offset + at for s in sections.values() if s.nbytes for at in (0, s.nbytes // 2, s.nbytes - 1)]
    for at in places:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert "was changed or damaged" in refused(path)
    for at in (20, PREFIX - 1, PREFIX + 3, start // 2):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert "was changed after it was written" in refused(path)
    path.write_bytes(onnx.ModelProto(producer_name="x").SerializeToString())
    assert "is no compiled model" in refused(path)
    assert "cannot be read (No such file or directory)" in refused(tmp_path / "nowhere.brick")
    assert "cannot be read" in refused(tmp_path)


def test_the_checksum_sees_what_storage_does_to_files():
    chunk = np.random.default_rng(0).integers(0, 256, 3 * 4096 + 100, np.uint8)
    swapped, zeroed, same_bit = chunk.copy(), chunk.copy(), chunk.copy()
    swapped[:4096], swapped[4096:8192] = chunk[4096:8192], chunk[:4096]
    zeroed[4096:8192] = 0
    one, other = (np.flatnonzero((same_bit[7:4096:8] >> 7) == bit)[0] * 8 + 7 for bit in (0, 1))
    same_bit[[one, other]] ^= 128  # the sum of the row stays as it is
    flipped = [chunk.copy() for _ in range(40)]
    for k, one_bit in enumerate(flipped):
        one_bit[k * 307] ^= 1 << k % 8
    sums = {checksum(changed) for changed in (chunk, swapped, zeroed, same_bit, chunk[:-1], *flipped)}
    assert len(sums) == 5 + len(flipped)


def test_files_for_something_else(file, monkeypatch):
    monkeypatch.setattr(compiled_model, "machine", lambda: "aarch64 Linux")
    assert "was compiled for x86_64 Linux, this is aarch64 Linux" in refused(file)
    monkeypatch.undo()
    monkeypatch.setattr(compiled_model, "lacking", lambda needs: sorted(needs)[:6])
    assert "this processor lacks" in refused(file) and "and more: use another --target" in refused(file)
    monkeypatch.undo()
    monkeypatch.setattr(compiled_model, "words_digest", lambda: "other")
    assert "was compiled by brickrt" in refused(file)


def test_models_that_are_more_than_a_program():
    x = tensor("x", (2, 3))
    shaped = model([node("Reshape", "x s", "y")], [x, tensor("s", (1,), np.int64)])
    cases = {
        r"node 'NonZero_0' \(NonZero\) runs on the host": model([node("NonZero", "x", "y")], [x]),
        "the values of input 's' decide shapes": shaped,
        "output 's' is known": model([node("Relu", "x", "y"), node("Shape", "x", "s")], [x], "y s"),
        "input 'x' is no tensor of numbers": model([node("Identity", "x", "y")], [tensor("x", (1,), np.object_)]),
    }
    for message, proto in cases.items():
        with pytest.raises(BrickError, match=f"{message}.*run the .onnx file"):
            compiled(Path("never.brick"), proto)
    with pytest.raises(BrickError, match="target 'sse' is unknown: use one of host, avx512, avx2, generic"):
        compiled(Path("never.brick"), network(), target="sse")
    with pytest.raises(BrickError, match="target neon is for ARM64"):
        compiled(Path("never.brick"), network(), target="neon")
