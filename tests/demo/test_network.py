"""The demo's denoiser."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime
from brickrt.demo import photo
from brickrt.demo.network import INPUT, OUTPUT, network


def test_the_network_is_valid_and_takes_out_noise(pictures):
    onnx.checker.check_model(network(), full_check=True)
    clean, noisy = (picture[:256, 100:356] for picture in pictures)
    result = photo.as_picture(Runtime(network(), threads=1).execute({INPUT: photo.as_input(noisy)})[OUTPUT])
    assert photo.psnr(result, clean) > photo.psnr(noisy, clean) + 5


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Runtime(network(), threads=1)


def test_what_is_no_photograph_has_a_finite_result(runtime):
    """Gates multiply: without bounds, noise of full contrast grows beyond float32."""
    rng = np.random.default_rng(0)
    for scale in (1, 1e30):
        values = (scale * rng.standard_normal((1, 3, 32, 32))).astype(np.float32)
        assert np.isfinite(runtime.execute({INPUT: values})[OUTPUT]).all()


def test_odd_sizes(runtime):
    """As the even size around it, whose last row and column are twice there."""
    values = np.random.default_rng(0).random((1, 3, 31, 31), np.float32)
    even = np.pad(values, ((0, 0), (0, 0), (0, 1), (0, 1)), mode="edge")
    expected = runtime.execute({INPUT: even})[OUTPUT][:, :, :31, :31]
    np.testing.assert_allclose(runtime.execute({INPUT: values})[OUTPUT], expected, atol=1e-5)
