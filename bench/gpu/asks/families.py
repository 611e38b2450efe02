"""Every family of kernels, in every type, alone on this GPU, against its definition in NumPy.

    python -m bench.gpu.asks.families [--precisions fp32,tf32,fp16,bf16] [--families products,…]

Layers are computed by brickrt's own kernels, also those that cuDNN would be asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx

from bench.gpu.asks.family_models import FAMILIES
from bench.gpu.support.common import TOLERANCE, among, engine, reference
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs, run_program
from brickrt.compare.difference import difference
from brickrt.plan.options import PlanOptions


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Seeded values for all inputs, of their types."""
    return {x.name: _values(x, k) for k, x in enumerate(model.graph.input)}


def _values(x: onnx.ValueInfoProto, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    if dtype.kind == "f":
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    return rng.integers(0 if dtype.kind == "u" else -90, 90, shape).astype(dtype)


def check(model: onnx.ModelProto, precision: Any, device: str) -> dict[str, Any]:
    """The largest error relative to the largest value, and which kernels computed it."""
    feeds = feeds_of(model)
    programs = Programs(engine(device, "streams", library=False), model)
    program = programs.program(programs.plan(PlanOptions("layerwise", precision=precision)))
    error = difference(run_program(program, feeds), reference(model, feeds))["max_rel_error"]
    return {"error": error, "us": 1e6 * program.seconds(), "good": error <= TOLERANCE[precision]}


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """All models in each precision; those of integers once."""
    for precision in among(asked.precisions, TOLERANCE, "precision"):
        for family in among(asked.families, FAMILIES, "family"):
            if family != "integers" or precision == "fp32":
                for name, model in FAMILIES[family]().items():
                    yield Item(f"{family}: {name}, {precision}", partial(check, model, precision, asked.device))


def main() -> int:
    """Checks what the command line names."""
    parser = options(__doc__)
    parser.add_argument("--precisions", default=",".join(TOLERANCE))
    parser.add_argument("--families", default=",".join(FAMILIES))
    asked = parser.parse_args()
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
