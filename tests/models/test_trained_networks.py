"""Trained networks read what was written.

A line of text is drawn, found by the detection network of PP-OCRv4 and read by its recognition network. Both come with
the package rapidocr-onnxruntime, of which only the files are used.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image, ImageDraw, ImageFont

import brickrt

TEXT = "Bricks:16x32"
SIZE = (384, 96)  # width, height
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
READ_HEIGHT = 48


def network(name: str) -> str:
    """Path of a network in the package, which is not imported."""
    spec = find_spec("rapidocr_onnxruntime")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("rapidocr-onnxruntime is not installed: pip install --no-deps rapidocr-onnxruntime")
    path = Path(spec.submodule_search_locations[0], "models", name)
    if not path.exists():
        pytest.skip(f"this version of rapidocr-onnxruntime has no {name}")
    return str(path)


def drawn(text: str) -> Image.Image:
    image = Image.new("RGB", SIZE, "white")
    ImageDraw.Draw(image).text((24, 28), text, fill="black", font=ImageFont.load_default(36))
    return image


def channels_first(image: Image.Image, mean: tuple[float, ...], deviation: tuple[float, ...]) -> np.ndarray:
    pixels = np.asarray(image, np.float32) / 255
    return np.ascontiguousarray(
        ((pixels - np.array(mean, np.float32)) / np.array(deviation, np.float32)).transpose(2, 0, 1)[None]
    )


@cache
def to_find() -> np.ndarray:
    return channels_first(drawn(TEXT), MEAN, DEVIATION)


def to_read(image: Image.Image) -> np.ndarray:
    width = round(image.width * READ_HEIGHT / image.height)
    return channels_first(image.resize((width, READ_HEIGHT), Image.Resampling.BILINEAR), (0.5,) * 3, (0.5,) * 3)


def box(probability: np.ndarray) -> tuple[int, int, int, int]:
    """Where the text is: the network marks only the middle of a line, so the box grows by its height."""
    rows, columns = np.nonzero(probability > 0.3)
    margin = (rows.max() - rows.min()) // 2
    left, top = max(columns.min() - margin, 0), max(rows.min() - margin, 0)
    return int(left), int(top), int(columns.max() + margin), int(rows.max() + margin)


def decoded(scores: np.ndarray, characters: list[str]) -> str:
    """The likeliest class of each step, repetitions once, class 0 for nothing."""
    best = scores.argmax(1)
    kept = best[(best != 0) & (np.diff(best, prepend=0) != 0)]
    return "".join(characters[k - 1] for k in kept)


def only_output(runtime: brickrt.Runtime, x: np.ndarray) -> np.ndarray:
    (y,) = runtime.execute({"x": x}).values()
    return y


def by_onnxruntime(path: str, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()


def test_text_is_found_and_read():
    """Found in shared bricks, with the same bits for any number of threads, and read as the plan has it."""
    finder, reader = network("ch_PP-OCRv4_det_infer.onnx"), network("ch_PP-OCRv4_rec_infer.onnx")
    found, again = (
        only_output(brickrt.Runtime(finder, device="cpu", strategy="memoized", brick=16, threads=n), to_find())
        for n in (1, 2)
    )
    np.testing.assert_array_equal(found, again)
    assert_close(found, by_onnxruntime(finder, to_find()))
    line = to_read(drawn(TEXT).crop(box(found[0, 0])))
    scores = only_output(brickrt.Runtime(reader, device="cpu"), line)
    assert_close(scores, by_onnxruntime(reader, line))
    metadata = {entry.key: entry.value for entry in onnx.load(reader).metadata_props}
    assert decoded(scores[0], [*metadata["character"].split("\n"), " "]) == TEXT
