from pathlib import Path

import pytest

from tests.support.cli_models import Call, caller, conv_model, sum_model


@pytest.fixture
def call(capsys) -> Call:
    return caller(capsys)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder with conv.onnx (x [N,3,8,8]) and sum.onnx (a and b [N,4])."""
    folder = tmp_path_factory.mktemp("models")
    conv_model(folder / "conv.onnx")
    sum_model(folder / "sum.onnx")
    return folder
