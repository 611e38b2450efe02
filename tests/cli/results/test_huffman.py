"""Deflate without repeats: zlib reads it, codes are as short as they can be, and no longer than four fit a word."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.cli.results.huffman import LONGEST_CODE, code_lengths, deflated, packer, reversed_codes


@pytest.fixture(scope="module")
def pack() -> Callable[..., int]:
    found = packer()
    assert found is not None
    return found


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([1, 2, 7, 256])), max_size=4))
def test_zlib_reads_what_was_packed(pack, strips):
    """Strips one behind the other, each of some bytes below a value, with codes of its own."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, below, count, np.uint8, endpoint=False).tobytes() for count, below in strips]
    packed = [deflated(part, False, pack) for part in parts] + [deflated(b"end", True, pack)]
    assert zlib.decompress(b"".join(packed), -15) == b"".join(parts) + b"end"


def test_a_strip_that_is_not_the_last_ends_at_a_whole_byte(pack):
    reader = zlib.decompressobj(-15)
    assert reader.decompress(deflated(b"abc", False, pack)) == b"abc" and not reader.eof
    assert reader.decompress(deflated(b"d", True, pack)) == b"d" and reader.eof


@settings(max_examples=20)
@given(st.integers(0, 2**30), st.floats(0, 40))
def test_codes_are_whole_and_differ(seed, spread):
    """Kraft's sum is 1: no code begins with another, and none is left over. Bytes are up to 2**spread times as often as
    others."""
    counts = np.floor(2 ** (np.random.default_rng(seed).random(256) * spread))
    lengths = code_lengths(counts).tolist()
    assert max(lengths) <= LONGEST_CODE and sum(2.0**-length for length in lengths) == 1
    codes = reversed_codes(np.array(lengths, np.uint8)).tolist()
    texts = sorted(f"{code:0{length}b}"[::-1] for code, length in zip(codes, lengths))
    assert not any(later.startswith(one) for one, later in pairwise(texts))


def test_noise_is_as_small_as_by_zlib(pack):
    values = np.clip(np.random.default_rng(0).standard_normal(200_000) * 12, -128, 127).astype(np.int8).tobytes()
    theirs = zlib.compressobj(1, zlib.DEFLATED, -15, strategy=zlib.Z_HUFFMAN_ONLY)
    assert len(deflated(values, True, pack)) < 1.005 * len(theirs.compress(values) + theirs.flush())
