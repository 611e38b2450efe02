"""Pictures of another size: by Pillow, as most training did it."""

from __future__ import annotations

import numpy as np
from PIL import Image

from brickrt.cli.inputs.presets import Preprocessing
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import InputError
from brickrt.plan.device.machine import memory_bytes

Size = tuple[int, int]  # height and width
PIXEL_BYTES, INPUT_BYTES = 3, 12  # of three channels, as bytes and as the network takes them
REDUCED = 2.0  # times the size that is wanted, which a JPEG that is decoded at a half, a quarter … keeps at least


def fitted_size(size: Size, wanted: tuple[int | None, int | None], asked: Preprocessing) -> tuple[Size, Size]:
    """The size to which a picture of `size` is resized, and the size that is then cut from its middle. `wanted` is the
    model's, None where it is open. Raises InputError for sizes that this machine cannot hold."""
    if asked.resize is not None or asked.crop is None or asked.short_side is None:
        whole = crop = asked.resize or size
    else:
        crop = wanted[0] or asked.crop, wanted[1] or asked.crop
        short = round(max(crop) * asked.short_side / asked.crop)
        ratio = short / min(size)
        whole = max(crop[0], round(size[0] * ratio)), max(crop[1], round(size[1] * ratio))
    taken = whole[0] * whole[1] * PIXEL_BYTES + crop[0] * crop[1] * INPUT_BYTES
    if whole != size and taken > memory_bytes():
        each = f"a picture resized to {whole[0]}x{whole[1]} (height x width) takes {size_text(taken)}"
        raise InputError(f"{each}, this machine has {size_text(memory_bytes())}: make it smaller")
    return whole, crop


def reduce_while_decoding(image: Image.Image, wanted: tuple[int | None, int | None], asked: Preprocessing) -> None:
    """Lets a JPEG that is not decoded yet be so at a half, a quarter or an eighth of its size, where it is much larger
    than what it is resized to: that is several times as quick, and hardly changes the result."""
    whole, _ = fitted_size((image.height, image.width), wanted, asked)
    share = REDUCED * max(whole[0] / image.height, whole[1] / image.width)
    if share < 1:
        image.draft(None, (round(image.width * share), round(image.height * share)))


def resized(image: Image.Image, whole: Size, crop: Size, bicubic: bool) -> Image.Image:
    """The picture resized to `whole`, the middle `crop` of it."""
    if whole != (image.height, image.width):
        way = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        image = image.resize((whole[1], whole[0]), way)
    if crop == whole:
        return image
    top, left = (whole[0] - crop[0]) // 2, (whole[1] - crop[1]) // 2
    return image.crop((left, top, left + crop[1], top + crop[0]))


def resized_planes(planes: np.ndarray, whole: Size, crop: Size, bicubic: bool) -> np.ndarray:
    """Float32 planes [..., height, width] resized and cut, each by itself."""
    flat = planes.reshape(-1, *planes.shape[-2:])
    made = [np.asarray(resized(Image.fromarray(plane), whole, crop, bicubic)) for plane in flat]
    return np.stack(made).reshape(*planes.shape[:-2], *crop)
