"""The CUDA kernels of the zoo, by a selection of them, compile without spilling registers; what the script says."""

import json
import re
import sys

import pytest

from bench.gpu import kernels
from bench.gpu.support.kernel_coverage import alone, cover, traits
from bench.gpu.support.kernel_figures import KernelFigures, ModelPrograms, Used, figures
from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import device_named
from brickrt.runtime.cuda.kernels.compile import compile_module
from tests.support.zoo_networks import shallow_model

# One device, each kind of product on its tensor cores: bfloat16 takes as many registers as float16, to a few, and older
# devices have the same code with fewer buffers. `python -m bench.gpu.kernels` compiles each precision for two devices.
DEVICES = {"h200": ("fp32", "tf32", "fp16")}
# Networks of large weights, or whose kernels are the others' but for a few tiles: the script compiles them as well.
LIKE_OTHERS = {
    *("bert", "darknet53", "drn-c-26", "inception-v4", "mobilenetv2", "mobilevit-s", "nerf", "resnet34-3d"),
    *("resnet50", "vgg16", "vit-s16"),
}


@pytest.fixture(scope="module")
def compiler():
    try:
        compile_module('extern "C" __global__ void nothing() {}\n', "sm_80")
    except BrickError as e:
        pytest.skip(str(e))


@pytest.mark.timeout(1800)
def test_kernels_compile_and_none_spills_without_a_reason(compiler):
    """Every line of any kernel in plans of networks, in one precision each, is compiled for its architecture, but for
    repeats. `python -m bench.gpu.kernels` compiles these too."""
    for device, used in all_used().items():
        by_size = sorted(used, key=lambda one: -len(one.functions))
        labels = {f: one.label for one in by_size for f in one.functions}
        chosen = without_repeats(cover(labels))
        assert len(labels) > 200 and 30 < len(chosen) < 150
        found = figures([Used(alone(f), labels[f]) for f in chosen], device_named(device).isa, threads=1)
        assert len(found) == len(chosen) and all(0 < one.registers <= 128 for one in found)
        assert [f"spills {one.spills} bytes: {one.label}" for one in kernels.spilling(found)] == []


def without_repeats(chosen):
    """Those that have lines, tiles or functions of an expression that none before has: of functions that differ in the
    dimensions of an address or the number of a tile's buffers alone, the first stands for the others."""
    seen, kept = set(), []
    for function in chosen:
        has = {known(family, line) for family, line in traits(function)}
        if not has <= seen:
            kept.append(function)
        seen |= has
    return kept


def known(family, line):
    line = re.sub(r"(brick::Tile<(\d+, ){4})\d+", r"\1#", line)
    line = re.sub(r"(p\[u\]\.i\[#\] \* -?#ll)( \+ p\[u\]\.i\[#\] \* -?#ll)+", r"\1", line)
    return ("" if re.match(r"const \w+ e# = ", line) else family), line


def all_used():
    """By device; networks take the precisions in turn, the script has all of each."""
    used = {device: [] for device in DEVICES}
    for turn, name in enumerate(sorted(set(zoo.names()) - LIKE_OTHERS)):
        network = ModelPrograms.of(shallow_model(name))
        for device, precisions in DEVICES.items():
            used[device] += network.functions(device_named(device), precisions[turn % len(precisions)])
    return used


def test_devices_and_precisions_are_those_of_the_script():
    """New ones have to be added to the test above."""
    assert set(DEVICES) < set(kernels.DEVICES)
    assert set(kernels.PRECISIONS) > {precision for some in DEVICES.values() for precision in some}


def test_a_selection_has_all_lines(compiler):
    network = ModelPrograms.of(zoo.build("mobilenetv2"))
    used = [one for p in ("fp32", "fp16") for one in network.functions(device_named("h200"), p)]
    functions = {f.name: f for one in used for f in one.functions}
    chosen = cover(functions.values())
    assert chosen == cover(reversed(functions.values()))
    assert set().union(*map(traits, chosen)) == set().union(*map(traits, functions.values()))
    assert len(chosen) < len(functions) / 2


def test_the_script_writes_what_it_found(compiler, monkeypatch, tmp_path, capsys):
    out = tmp_path / "kernels.json"
    words = ["kernels.py", "--networks", "nafnet", "--devices", "h200", "--precisions", "fp32", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    assert kernels.main() == 0
    found = json.loads(out.read_text())
    assert found["networks"] == ["nafnet"] and found["commit"] and found["nvrtc"]
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["sm_90"]]
    assert sum(k["functions"] for k in rows) == found["summary"]["sm_90"]["functions"] > 8
    assert any("DepthwiseConv" in k["label"] for k in rows) and all(k["blocks"] >= 1 for k in rows)
    assert "nafnet on h200 in fp32" in capsys.readouterr().out


def test_resident_blocks():
    assert KernelFigures("a", "A", 32, 1536, 0, 0).blocks("sm_90") == 8
    assert KernelFigures("a", "A", 129, 1536, 0, 0).blocks("sm_90") == 1
    assert KernelFigures("a", "A", 40, 50 << 10, 0, 0).blocks("sm_80") == 3
    assert KernelFigures("a", "A", 32, 1536, 0, 0).blocks("sm_89") == 6
    assert KernelFigures("a", "A", 80, 49 << 10, 0, 0).blocks("sm_89") == 2


def test_a_kernel_that_spills_needs_a_reason(monkeypatch):
    found = [KernelFigures("a", "Some [1]", 255, 0, 8, 16), KernelFigures("b", "Other [2]", 32, 0, 0, 0)]
    assert kernels.spilling(found) == found[:1]
    for label in ("Some [1]", "S*[1]", "*e*"):
        for most, left in ((16, 0), (15, 1)):
            monkeypatch.setattr(kernels, "allowed", lambda label=label, most=most: {label: (most, "it is rare")})
            assert kernels.spilling(found) == found[:left]
    monkeypatch.setattr(kernels, "allowed", lambda: {"Some": (16, "it is rare"), "Some [2]": (16, "it is rarer")})
    assert kernels.spilling(found) == found[:1]


def test_a_selection_of_kernel_functions(compiler):
    used = ModelPrograms.of(zoo.build("mobilenetv2")).functions(device_named("h200"), "fp32")
    chosen = kernels.selected(used)
    assert 0 < len(chosen) < len(used) and set(chosen) <= set(used)
    have, all_of_them = ({f for one in some for f in one.functions} for some in (chosen, used))
    assert set().union(*map(traits, have)) == set().union(*map(traits, all_of_them))


def test_every_kernel_in_the_list_has_a_reason():
    assert all(label and most and reason for label, (most, reason) in kernels.allowed().items())
