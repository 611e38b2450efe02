"""The demo's photograph, with and without noise. Pictures are bytes [height, width, 3]; needs Pillow."""

from __future__ import annotations

from importlib.resources import files
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw

SIGMA = 25 / 255  # the noise that the denoiser was trained for, of values from 0 to 1
FACE = (0.43, 0.21)  # the middle of the part shown side by side: right and down, as shares of the edge
GAP = 8  # pixels between pictures side by side
COMPRESSION = 1  # noise hardly compresses, and a higher level takes seconds


def photograph(size: int) -> np.ndarray:
    """The packaged photograph, enlarged to `size` by `size` pixels."""
    with files(__package__).joinpath("astronaut.jpg").open("rb") as file:
        photo = Image.open(file).convert("RGB")
    return np.asarray(photo.resize((size, size), Image.Resampling.BICUBIC))


def noisy(clean: np.ndarray, seed: int) -> np.ndarray:
    """The picture with normal noise added, rounded to bytes."""
    noise = np.random.default_rng(seed).standard_normal(clean.shape, np.float32)
    return as_bytes(clean / np.float32(255) + np.float32(SIGMA) * noise)


def as_bytes(values: np.ndarray) -> np.ndarray:
    """Values from 0 to 1 as bytes; those beyond are cut off."""
    return (np.clip(values, 0, 1) * 255).round().astype(np.uint8)


def as_input(picture: np.ndarray) -> np.ndarray:
    """A picture as the network's input: float32 [1, 3, height, width], 0 to 1."""
    return np.divide(picture.transpose(2, 0, 1)[None], 255, dtype=np.float32, order="C")


def as_picture(output: np.ndarray) -> np.ndarray:
    """The network's output as a picture, bytes [height, width, 3]."""
    return as_bytes(output[0].transpose(1, 2, 0))


def psnr(picture: np.ndarray, clean: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB; infinite where the two are equal."""
    error = float(np.mean((picture.astype(np.float32) - clean) ** 2, dtype=np.float64))
    return 10 * float(np.log10(255**2 / error)) if error else float("inf")


def png(picture: np.ndarray) -> bytes:
    """The picture as a PNG file."""
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=COMPRESSION)
    return file.getvalue()


def side_by_side(pictures: dict[str, np.ndarray], edge: int = 480) -> np.ndarray:
    """The `edge` by `edge` pixels about the face, or all where there are fewer, of each picture under its title."""
    height, width = next(iter(pictures.values())).shape[:2]
    edge = min(edge, height, width)
    left, top = (
        min(max(0, round(at * extent) - edge // 2), extent - edge) for at, extent in zip(FACE, (width, height))
    )
    shown = Image.new("RGB", (len(pictures) * (edge + GAP) - GAP, edge), "white")
    draw = ImageDraw.Draw(shown)
    for number, (title, picture) in enumerate(pictures.items()):
        x = number * (edge + GAP)
        shown.paste(Image.fromarray(picture[top : top + edge, left : left + edge]), (x, 0))
        draw.rectangle(draw.textbbox((x + 8, 6), f" {title} "), "black")
        draw.text((x + 8, 6), f" {title} ", "white")
    return np.asarray(shown)
