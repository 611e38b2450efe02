"""The demo's denoiser."""

from __future__ import annotations

import onnx

from brickrt import Runtime
from brickrt.demo import photo
from brickrt.demo.network import INPUT, OUTPUT, network


def test_the_network_is_valid_and_takes_out_noise(pictures):
    onnx.checker.check_model(network(), full_check=True)
    clean, noisy = (picture[:256, 100:356] for picture in pictures)
    result = photo.as_picture(Runtime(network(), threads=1).execute({INPUT: photo.as_input(noisy)})[OUTPUT])
    assert photo.psnr(result, clean) > photo.psnr(noisy, clean) + 5
