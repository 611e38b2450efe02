"""Code by outline: found for sizes that it is good for, in this process and in others, and the same results with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import zoo
from brickrt.ops.cpu.sized_kernel import outline
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile import code_cache, compile_pool, load
from brickrt.runtime.cpu.compile.code_cache import CodeCache, decode, encode
from brickrt.runtime.session.runtime import Runtime
from tests.support.cpu.small_kernels import kernels


@pytest.fixture
def made():
    """Code of a sum of rows, of 3 elements here."""
    return compile_pool.build(kernels(3)[2])


def test_a_blob_gives_back_what_it_was_made_of(made):
    assert decode(encode([made, made])) == (made, made)


def test_code_is_found_by_outline_and_numbers(made, tmp_path):
    store, cache, kernel = DiskCache(tmp_path / "kernels"), CodeCache(), outline(kernels(3)[2])
    cache.add(store, "0" * 32, made)
    for other in (cache, CodeCache()):  # of this process, and of another one
        for numbers in (kernel.numbers, tuple(n + 5 for n in kernel.numbers)):
            code, table = other.find(store, "0" * 32, replace(kernel, numbers=numbers))
            assert code == made
            assert table.tolist() == made.sizes.table(numbers)
        assert other.find(store, "1" * 32, kernel) is None


def test_code_is_kept_where_no_folder_can_be_written(made, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    store, cache = DiskCache(tmp_path / "file" / "kernels"), CodeCache()
    cache.add(store, "0" * 32, made)
    assert cache.find(store, "0" * 32, outline(kernels(3)[2]))[0] == made


def test_this_process_keeps_so_many_bytes(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(code_cache, "KEPT_BYTES", 2 * len(made.image))
    store, cache = DiskCache(tmp_path / "file" / "kernels"), CodeCache()
    for digit in "0123":
        cache.add(store, digit * 32, made)
    kernel = outline(kernels(3)[2])
    assert [cache.find(store, digit * 32, kernel) is not None for digit in "0123"] == [False, False, True, True]


def test_a_new_size_runs_code_of_others_to_the_same_bits(tmp_path, monkeypatch):
    """A small U-Net at two widths; how few pixels tiles have at the second may ask for code of its own."""
    monkeypatch.setattr(compile_pool, "KERNELS_PER_HELPER", 1000)
    model = zoo.build("unet", size=16, levels=1, width=16)
    for end in (*model.graph.input, *model.graph.output):
        for side, dim in zip("HW", end.type.tensor_type.shape.dim[2:], strict=True):
            dim.dim_param = side
    rng = np.random.default_rng(0)
    x, y = (rng.random((1, 3, 16, width), dtype=np.float32) for width in (602, 658))
    compiled, build = list[str](), compile_pool.build
    monkeypatch.setattr(compile_pool, "build", lambda kernel: compiled.append(repr(kernel)) or build(kernel))

    def run(folder: str, *many: np.ndarray) -> tuple[list[int], np.ndarray]:
        """How much code was compiled for each input, with an empty cache to begin with; the last output."""
        monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / folder))
        monkeypatch.setattr(load, "CODE_CACHE", CodeCache())
        runtime, counts = Runtime(model, device="cpu", threads=1, strategy="layerwise", exact=True), []
        for one in many:
            compiled.clear()
            [out] = runtime.execute({"x": one}).values()
            counts.append(len(compiled))
        return counts, out

    (first, later), reused = run("both", x, y)
    (alone,), own = run("one", y)
    assert alone >= first / 2 and later <= first / 3
    np.testing.assert_array_equal(reused, own)


def test_the_fifth_size_of_products_gets_code_for_all_that_follow(tmp_path, monkeypatch):
    """Products of few rows, one register tile each: of one vector of columns, whose tile is that of all processors
    with as many registers. The first sizes have code of their own, which is compiled sooner."""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(load, "CODE_CACHE", CodeCache())
    asked, build = list[bool](), compile_pool.build
    monkeypatch.setattr(compile_pool, "build", lambda kernel: asked.append(kernel.broad) or build(kernel))
    runtime = Runtime(product_of_rows(), device="cpu", threads=1, exact=True)
    rows = np.random.default_rng(0).random((12, 64), dtype=np.float32)
    outputs = {n: runtime.execute({"x": rows[:n]})["y"] for n in (7, 8, 12, 9, 10, 11)}
    assert asked == [False] * 4 + [True]
    for n, out in outputs.items():
        np.testing.assert_array_equal(out, outputs[12][:n])


def test_a_model_of_open_sizes_gets_code_for_all_that_follow_at_once(tmp_path, monkeypatch):
    """An open first extent alone may be the batch, which does not vary much."""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(load, "CODE_CACHE", CodeCache())
    asked, build = list[bool](), compile_pool.build
    monkeypatch.setattr(compile_pool, "build", lambda kernel: asked.append(kernel.broad) or build(kernel))
    runtime = Runtime(product_of_rows("n", "rows"), device="cpu", threads=1, exact=True)
    rows = np.random.default_rng(0).random((1, 12, 64), dtype=np.float32)
    outputs = {n: runtime.execute({"x": rows[:, :n]})["y"] for n in (7, 8, 12, 9, 10)}
    assert asked == [True]
    for n, out in outputs.items():
        np.testing.assert_array_equal(out, outputs[12][:, :n])


def product_of_rows(*lead: str) -> bytes:
    """x [rows, 64], or with `lead` instead of rows, times constants [64, lanes of a vector], y."""
    lanes = host_device().lanes
    weights, lead = np.random.default_rng(1).random((64, lanes), dtype=np.float32), lead or ("n",)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [*lead, k]) for name, k in (("x", 64), ("y", lanes))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "rows", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
