"""Real cuDNN plans what the engine asks of it, for devices that are only described; nothing runs on a GPU."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.gpu.described import library
from bench.gpu.described.devices import DESCRIBED, attributes, properties
from bench.gpu.described.forms import described, is_full, kind_of, known_refusal, wrong
from bench.gpu.described.library import Answer, DescribedLibrary, missing
from bench.gpu.described.zoo_calls import ask_for
from bench.gpu.support.kernel_figures import ModelPrograms
from brickrt import zoo
from brickrt.ops.cuda.cudnn.form import Form, Unfit
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.matmul import MatMul
from tests.support.cudnn.cudnn_cases import BF16, F16, F32, conv, filled, form, transposed

DEVICES = ("h200", "a100", "l40s")
TYPES = {"fp32": F32, "tf32": F32, "fp16": F16, "bf16": BF16}
needs_cudnn = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def typical(precision: str) -> list[Form]:
    """A form of every kind that plans of the zoo have. Matrix products and transposed convolutions, for which cuDNN
    compiles kernels for a second and more, only in some precisions."""
    dtype = TYPES[precision]
    relu = apply("max", arg(0, dtype), const(0, dtype))

    def of(op, *extents: tuple[int, ...]) -> Form:
        return form(op, [filled(e, dtype) for e in extents], precision)

    images = conv((3, 3), pads=1, bias=True, epilogue=relu)
    found = [
        of(images, (1, 64, 14, 14), (64, 64, 3, 3), (64,)),
        of(replace(images, groups=32), (1, 32, 14, 14), (32, 1, 3, 3), (32,)),
        of(conv((3, 3, 3), pads=1, bias=True), (1, 16, 4, 8, 8), (32, 16, 3, 3, 3), (32,)),
        of(conv((1, 1), 2), (2, 32, 8, 8), (64, 32, 1, 1)),
    ]
    if precision == "fp32":
        found.append(of(transposed((2, 2), 2, bias=True), (1, 32, 8, 8), (32, 16, 2, 2), (16,)))
    if precision in ("fp32", "fp16"):
        found.append(of(MatMul(bias=True, epilogue=relu), (1, 1024), (1024, 4096), (4096,)))
    return found


@pytest.fixture(scope="module")
def libraries():
    """cuDNN on each device."""
    found = {}
    try:
        for device in DEVICES:
            found[device] = DescribedLibrary(device)
        yield found
    finally:
        for library in found.values():
            library.close()


@needs_cudnn
@pytest.mark.parametrize("device", DEVICES)
def test_every_kind_has_a_plan(libraries, device):
    real = libraries[device]
    asked = {one: precision for precision in TYPES for one in typical(precision)}
    for one in asked:
        real.plan(one)
    said = {one: real.answers[one] for one in asked}
    assert not wrong(said)
    assert not any(answer.tensor_cores for one, answer in said.items() if is_full(one))
    rounded = [answer.tensor_cores for one, answer in said.items() if kind_of(one) == "conv 2d float32 tf32"]
    assert any(rounded)  # the question can be answered with yes


@needs_cudnn
@pytest.mark.parametrize("device", DEVICES)
def test_plans_of_a_network_are_taken(libraries, device):
    """All of MobileNetV2 in full float32 but its last layer, which is the graph's output."""

    real = libraries[device]
    before = set(real.answers)
    network = ModelPrograms.of(zoo.build("mobilenetv2", size=64))
    counts = ask_for(network, real, device, "fp32", "layerwise")
    assert counts.called == counts.products - 1 and "output of the graph" in str(counts.reasons)
    new = {one: answer for one, answer in real.answers.items() if one not in before}
    assert len(new) > 20 and not any(answer.refused for answer in new.values()) and not wrong(new)


@needs_cudnn
@pytest.mark.parametrize("device", DEVICES)
def test_full_products_of_two_activations_are_refused(libraries, device):
    """Where this fails, cuDNN has learnt them: then `known_refusal` and `as_convolution` may ask for more."""
    product = form(MatMul(), [filled((4, 16, 8)), filled((4, 8, 16))], packed=False)
    assert known_refusal(product)
    with pytest.raises(Unfit, match="cuDNN refuses"):
        libraries[device].plan(product)


@needs_cudnn
def test_a_crash_is_an_answer():
    first, second = typical("fp16")[:2]
    with DescribedLibrary("h100") as real:
        real._worker.kill()
        with pytest.raises(Unfit, match="cuDNN's process ended"):
            real.plan(first)
        assert real.answers[first].crashed and real.plan(second).form == second


def test_what_is_wrong_is_said():
    """Unknown refusals, crashes, and tensor cores in full float32; not those in tf32."""
    full, rounded = typical("fp32")[0], typical("tf32")[0]
    product = form(MatMul(), [filled((4, 8)), filled((8, 4))], packed=False)
    assert not wrong({full: Answer("eng0"), rounded: Answer("eng0", tensor_cores=True), product: Answer(refused="no")})
    assert wrong({full: Answer(refused="no")}) == [f"{described(full)}: no"]
    assert wrong({product: Answer(refused="it ended", crashed=True)}) == [f"{described(product)}: it ended"]
    assert wrong({full: Answer("eng7", tensor_cores=True)}) == [f"{described(full)}: eng7 uses tensor cores"]


def test_devices_are_described_in_full():
    for name in DESCRIBED:
        known, numbers = properties(name), attributes(name)
        assert json.loads(json.dumps(known)) == known
        assert numbers[75] * 100 + numbers[76] * 10 == known["deviceVer"]
        assert known.keys() == properties("h200").keys()


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(library, "COMPILER", "/usr/bin/cc")
    monkeypatch.setattr(library, "PACKAGES", ("onnx", "not-a-package"))
    assert missing() == "cuDNN is missing: pip install --no-deps not-a-package"
    monkeypatch.setattr(library, "COMPILER", None)
    assert missing() == "the fake runtime needs a C compiler, cc"
