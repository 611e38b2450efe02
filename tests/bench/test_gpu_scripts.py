"""The scripts for GPU machines, as far as a machine without one can run them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from bench.gpu.asks import brickdl, counters, families, host, networks
from bench.gpu.asks.family_models import FAMILIES
from bench.gpu.support.common import engine, reference
from bench.gpu.support.programs import Programs
from brickrt.compare.gpu_peers import as_numpy, make_peers
from brickrt.compare.interleave import turns
from brickrt.runtime.events import TaskEvents

RAW = """==PROF== Connected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_sectors.sum","l1tex__t_sectors.sum"
"","","Mbyte","Kbyte","sector","sector"
"0","layer_0","1.5","2","1,000","10"
"1","bricks_1","0.5","1","24","n/a"
"""


def test_counters_are_summed_over_kernels():
    assert counters.summed(RAW) == {
        "dram_read_bytes": 2e6, "dram_write_bytes": 3e3, "l2_sectors": 1024.0, "l1_sectors": 10.0
    }  # fmt: skip
    assert counters.summed("==ERROR== no permission\n") == {}


def test_time_per_brick_comes_from_events():
    rows = [np.array([[0, 1, 4_001, 0, 0], [1, 10_001, 16_001, 0, 0]]), np.array([[2, 5_001, 9_001, 0, 0]])]
    events = TaskEvents(rows)
    assert brickdl.per_brick(events) == {"task_us": pytest.approx(14 / 3), "between_us": 6.0}


def test_every_network_is_asked_for_once_per_setting():
    import argparse

    asked = argparse.Namespace(precisions="fp32,fp16", batches="1,8", networks="vgg16,unet:2048", peers="torch")
    asked.launches = "auto"
    names = [item.name for item in networks.items(asked)]
    assert len(names) == len(set(names)) == 2 * 2 * 2 and "unet 2048, batch 8, fp16, auto" in names


@pytest.fixture
def few_blocks(monkeypatch):
    """MobileNetV2 with a block of each kind: peers take long to trace and to compile many that are alike."""
    from brickrt.zoo.networks import mobilenetv2

    monkeypatch.setattr(mobilenetv2, "BLOCKS", mobilenetv2.BLOCKS[:3])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_peers_agree_on_the_host(precision, few_blocks):
    """PyTorch as it is, traced and compiled, and XLA, on the CPU: the same calls as on a GPU."""
    pytest.importorskip("torch", reason="PyTorch is not installed: peers of the GPU benchmark need it")
    from brickrt import Runtime, zoo

    model = zoo.build("mobilenetv2", size=32)
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)}
    (want,) = Runtime(model).execute(x).values()
    peers, left_out = make_peers(model, x, precision, ["torch", "torchscript", "xla"], device="cpu")
    assert {p.name for p in peers} | set(left_out) == {"torch", "torchscript", "xla"} and "torch" not in left_out
    for peer in peers:
        (got,) = map(as_numpy, peer.run())
        assert np.abs(got - want).max() <= (1e-4 if precision == "fp32" else 0.1) * np.abs(want).max()
    assert all(len(times) == 2 for times in turns(peers, rounds=2, pause=0).values())


@pytest.mark.parametrize("name", ["mobilenetv2", "vit-s16", "unet"])
def test_networks_are_given_to_torch_compile_in_one_graph(name, few_blocks):
    """As far as Dynamo goes: what generates code would take minutes."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: peers of the GPU benchmark need it")
    from brickrt.compare.gpu_peers import exported
    from brickrt.compare.torch_backend import TorchNetwork
    from brickrt.compare.translate import network
    from tests.support.zoo_networks import slim_model

    module, x = TorchNetwork(network(slim_model(name, size=32))).eval(), torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        (want,) = module(x)
        (got,) = torch.compile(exported(module, [x]), backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(got, want)


def test_a_peer_that_would_compute_on_the_host_is_left_out():
    """JAX falls back to the host where it cannot use the GPU: no peer of a GPU."""
    jax = pytest.importorskip("jax", reason="JAX is not installed: it is compared where it is present")
    if jax.default_backend() == "gpu":
        pytest.skip("JAX has a GPU here")
    from brickrt import zoo

    x = {"x": np.zeros((1, 3, 32, 32), np.float32)}
    peers, left_out = make_peers(zoo.build("mobilenetv2", size=32), x, "fp32", ["xla"])
    assert not peers and "JAX finds no GPU" in left_out["xla"]


def test_the_hosts_time_is_measured_on_a_device_that_does_nothing(monkeypatch, capsys):
    """How long it takes here is no matter."""
    from brickrt.runtime.session import runtime

    monkeypatch.setattr(runtime, "choose_engine", runtime.choose_engine)  # put back afterwards
    monkeypatch.setattr(host, "WINDOWS", 2)
    monkeypatch.setattr(sys, "argv", "host.py --device null --networks nafnet --runs 20".split())
    assert host.main() == 0
    asks, begin, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert asks == {"asks": ["nafnet"]} and begin == {"begin": "nafnet"}
    assert row["status"] == "null" and row["run_same_us"] > 0 and row["execute_numpy_us"] > 0


def test_every_kernel_is_among_the_families():
    """Programs of all models have kernels of all classes, and a model that has none is of no use."""
    from brickrt.ops.cuda import all_kernels
    from brickrt.ops.cuda.kernel import Kernel
    from brickrt.ops.cuda.moves.move import ViewKernel
    from brickrt.ops.cuda.reductions.partial_reduce import PartialReduceKernel
    from brickrt.plan.options import PlanOptions

    assert all_kernels.__all__
    seen = set()
    for name, model in [pair for family in FAMILIES.values() for pair in family().items()]:
        programs = Programs(engine("null", "streams", library=False), model)
        kernels = kernels_of(programs.engine, programs.plan(PlanOptions("layerwise")))
        assert kernels, name
        seen |= kernels
        if "chain" in name:  # on tensor cores alone
            seen |= kernels_of(programs.engine, programs.plan(PlanOptions("layerwise", precision="fp16")))
    known = {kind for kind in leaves(Kernel) if kind.__module__.startswith("brickrt.")}
    # programs view dense tensors only, which the kernel of copies does; fused bricks of large images reduce in parts
    assert known - seen == {ViewKernel, PartialReduceKernel}


def kernels_of(engine, plan):
    """The classes of the kernels of a plan."""
    from brickrt.runtime.cuda.blueprint import CudaOptions, draw_up
    from brickrt.runtime.lowering.lower import lower

    tasks = lower(plan)
    blueprint = draw_up(tasks, engine.arrays, CudaOptions("streams", library=False))
    steps = range(len(tasks.steps))
    return {type(records.kernel) for step in steps for records in blueprint.arguments.of(step)}


def leaves(kind):
    """The classes below one that no other is derived from."""
    return set().union(*map(leaves, kind.__subclasses__())) if kind.__subclasses__() else {kind}


def test_models_of_families_are_right_on_the_host():
    """What the GPU is compared with agrees with the CPU engine, in every family."""
    from brickrt import Runtime
    from brickrt.compare.difference import difference

    for family in FAMILIES.values():
        for name, model in list(family().items())[::3]:
            feeds = families.feeds_of(model)
            found = list(Runtime(model, device="cpu", threads=1).execute(feeds).values())
            assert difference(found, reference(model, feeds))["max_rel_error"] < 1e-5, name


def test_what_is_unknown_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", "families.py --families bogus".split())
    with pytest.raises(SystemExit) as ended:
        families.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("family 'bogus' is unknown: use some of products, ")
