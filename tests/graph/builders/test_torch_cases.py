"""The small models that ONNX ships from PyTorch's tests, converted from opset 6 to newer opsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, version_converter
from onnx.backend.test.loader import load_model_tests

from brickrt.graph.onnx_import import source
from tests.support.graphs import by_definition


# each kind and each version; tests/backend runs all of them as they are
@pytest.mark.parametrize(
    ("kind", "version"),
    [("pytorch-operator", 11), ("pytorch-operator", 18), ("pytorch-converted", 7), ("pytorch-converted", 13)],
)
def test_models_of_pytorch(kind: str, version: int) -> None:
    failures = [name for case in load_model_tests(kind=kind) for name in failed(Path(case.model_dir), version)]
    assert not failures


def failed(folder: Path, version: int) -> list[str]:
    """The data sets of a model for which the results are wrong."""
    proto = onnx.load(folder / "model.onnx")
    if proto.opset_import[0].version < version:
        proto = version_converter.convert_version(proto, version)
    model = source.load(proto)
    wrong = []
    for data in sorted(folder.glob("test_data_set_*")):
        results = by_definition.run_model(model, dict(zip(model.inputs | model.optional, arrays(data, "input"))))
        pairs = zip(results.values(), arrays(data, "output"), strict=True)
        if not all(a.dtype == e.dtype and np.allclose(a, e, 2e-3, 1e-5, equal_nan=True) for a, e in pairs):
            wrong.append(f"{folder.name}/{data.name}")
    return wrong


def arrays(data: Path, kind: str) -> list[np.ndarray]:
    """The tensors beside a model, in order."""
    paths = sorted(data.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]
