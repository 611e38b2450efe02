"""The demo's photograph, network and engines."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime
from brickrt.demo import photo
from brickrt.demo.engines import DemoPictures, EngineFigures, measure
from brickrt.demo.network import INPUT, OUTPUT, network


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Clean and noisy, of the size that the photograph has."""
    clean = photo.photograph(512)
    return clean, photo.noisy(clean, 0)


def test_noise_is_seeded_and_of_the_strength_it_should_have(pictures):
    clean, noisy = pictures
    assert clean.shape == noisy.shape == (512, 512, 3) and clean.dtype == noisy.dtype == np.uint8
    assert np.array_equal(noisy, photo.noisy(clean, 0)) and not np.array_equal(noisy, photo.noisy(clean, 1))
    middle = (clean > 100) & (clean < 155)  # nothing is cut off there
    assert (noisy.astype(float) - clean)[middle].std() == pytest.approx(25, rel=0.02)


def test_psnr():
    black = np.zeros((4, 4, 3), np.uint8)
    assert photo.psnr(black, black) == np.inf
    assert photo.psnr(black + np.uint8(255), black) == pytest.approx(0)


def test_bytes_survive_the_way_through_tensors(pictures):
    tensor = photo.as_input(pictures[1])
    assert tensor.shape == (1, 3, 512, 512) and tensor.flags.c_contiguous
    assert np.array_equal(photo.as_picture(tensor), pictures[1])


def test_crops_stand_side_by_side(pictures):
    clean, noisy = pictures
    assert photo.side_by_side({"a": noisy, "b": clean}, edge=100).shape == (100, 200 + photo.GAP, 3)
    assert photo.side_by_side({"a": noisy[:64, :64]}).shape == (64, 64, 3)


def test_the_network_is_valid_and_takes_out_noise(pictures):
    onnx.checker.check_model(network(), full_check=True)
    clean, noisy = (picture[:256, 100:356] for picture in pictures)
    result = photo.as_picture(Runtime(network(), threads=1).execute({INPUT: photo.as_input(noisy)})[OUTPUT])
    assert photo.psnr(result, clean) > photo.psnr(noisy, clean) + 5


@pytest.mark.parametrize("engine", ["bricks", "layerwise", "onnxruntime"])
def test_an_engine_is_measured_in_its_own_process(pictures, engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    figures = measure(engine, DemoPictures(pictures[0], pictures[1], threads=1, runs=2))
    assert isinstance(figures, EngineFigures), figures
    assert 0 < figures.ms["min"] <= figures.ms["median"] <= figures.ms["max"]
    assert figures.peak_bytes is None or 2**20 < figures.peak_bytes < 2**30
    assert figures.psnr > photo.psnr(pictures[1], pictures[0]) + 5


def test_an_engine_that_fails_says_why(pictures):
    told = measure("abacus", DemoPictures(pictures[0], pictures[1], threads=1, runs=1))
    assert isinstance(told, str) and told.startswith("failed: ") and "abacus" in told
