"""The demo's photograph, with and without noise."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.demo import photo


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
