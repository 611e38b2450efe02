"""Images as input tensors."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from brickrt.cli.inputs.presets import Preprocessing
from brickrt.cli.requests import ImageLayout
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files.formats.pictures import GREY, GREY_16_BITS, RGB, readable, upright, upright_size
from brickrt.runtime.files.tensors import is_scaled, unit_scale

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
ROWS_AT_A_TIME = 256  # that are scaled, so that they stay in the cache


@dataclass(frozen=True)
class Picture:
    """An image as the input's array, and as the bytes [height, width, channels] that it was made of."""

    array: np.ndarray
    pixels: np.ndarray


def read_image(path: Path, name: str, info: TensorInfo, asked: Preprocessing) -> Picture:
    """The image in the type, rank and layout that input `name` takes. Its size is changed only where that was asked."""
    _check_taken(path, name, info, asked)
    layout = asked.layout or layout_of(info)
    height, width, channels = expected(info, layout)
    pixels = _pixels(path, channels, (height, width), asked)
    _check_size(path, name, info, pixels.shape[:2], (height, width))
    seen = pixels[:, :, ::-1] if asked.swapped and pixels.shape[2] == 3 else pixels
    return Picture(_arranged(seen, info, layout, asked), pixels)


def image_shape(path: Path, name: str, info: TensorInfo, asked: Preprocessing) -> tuple[int, ...] | None:
    """The shape of what `read_image` gives, by the file's header alone. None where it does not fit the model, which
    reading the file says why. Raises InputError for what is no image."""
    _check_taken(path, name, info, asked)
    from brickrt.cli.inputs.resizing import fitted_size

    layout = asked.layout or layout_of(info)
    height, width, channels = expected(info, layout)
    with readable(path) as image:
        size, mode = upright_size(image), image.mode
    crop = fitted_size(size, (height, width), asked)[1]
    if any(w is not None and w != g for g, w in zip(crop, (height, width))):
        return None
    count = 1 if mode.startswith(GREY_16_BITS) and channels != RGB else channels or (1 if mode in GREY else RGB)
    return _arranged_shape((*crop, count), info, layout)


def _check_taken(path: Path, name: str, info: TensorInfo, asked: Preprocessing) -> None:
    assert info.dtype is not None
    if not (is_scaled(info.dtype) or info.dtype == np.uint8) or (info.shape and len(info.shape) not in (2, 3, 4)):
        raise InputError(f"{path}: input '{name}' {describe(info)} takes no image: give a .npy file")
    unfit = [option for option, value in (("--mean", asked.mean), ("--std", asked.std)) if value is not None]
    unfit += ["--scale"] if asked.scale not in (None, 1.0) else []
    if info.dtype == np.uint8 and unfit:
        given = f"{unfit[0]}, or a preset with one"
        raise InputError(f"{given}: input '{name}' {describe(info)} takes bytes as they are: leave it out")
    if asked.scale is not None and (not np.isfinite(asked.scale) or asked.scale == 0):
        raise InputError(f"--scale {asked.scale} is impossible: give a number such as 1, or 0.00392 for 1/255")
    channels = expected(info, asked.layout or layout_of(info))[2]
    if channels is not None and channels not in MODES:
        raise InputError(f"{path}: input '{name}' has {channels} channels, images have 1, 3 or 4: give a .npy file")
    if find_spec("PIL") is None:
        raise InputError(f'{path}: reading images needs Pillow: pip install "brickrt[images]"')


def layout_of(info: TensorInfo) -> ImageLayout:
    """Channels last where only the last dimension can be channels."""
    shape = info.shape or ()
    first_taken = len(shape) >= 3 and shape[-3] in MODES
    return "nhwc" if len(shape) >= 3 and shape[-1] in MODES and not first_taken else "nchw"


def expected(info: TensorInfo, layout: ImageLayout) -> tuple[int | None, int | None, int | None]:
    """Height, width and channels, None where the model leaves them open."""
    if info.shape is None:
        return None, None, None
    dims = [dim if isinstance(dim, int) else None for dim in info.shape]
    if len(dims) == 2:
        return dims[0], dims[1], 1
    if layout == "nhwc":
        return dims[-3], dims[-2], dims[-1]
    return dims[-2], dims[-1], dims[-3]


def _pixels(
    path: Path, channels: int | None, wanted: tuple[int | None, int | None], asked: Preprocessing
) -> np.ndarray:
    """The image file as whole numbers [height, width, channels], in the size that was asked for."""
    from brickrt.cli.inputs.resizing import fitted_size, resized

    image = _opened(path, wanted, asked)
    deep = image.mode.startswith(GREY_16_BITS)
    if not deep:
        mode = MODES[channels] if channels else "L" if image.mode in GREY else "RGB"
        image = image.convert(mode) if image.mode != mode else image
    whole, crop = fitted_size((image.height, image.width), wanted, asked)
    pixels = np.asarray(resized(image, whole, crop, asked.bicubic))
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return np.repeat(pixels, channels, 2) if deep and channels == RGB else pixels


def _opened(path: Path, wanted: tuple[int | None, int | None], asked: Preprocessing) -> Image:
    from brickrt.cli.inputs.resizing import reduce_while_decoding

    with readable(path) as image:
        reduce_while_decoding(image, wanted, asked)
        return upright(path, image)


def _check_size(
    path: Path, name: str, info: TensorInfo, got: tuple[int, ...], wanted: tuple[int | None, int | None]
) -> None:
    if any(w is not None and w != g for g, w in zip(got, wanted)):
        fit = "x".join(str(g if w is None else w) for g, w in zip(got, wanted))
        is_, takes = f"{got[0]}x{got[1]} (height x width)", describe(info)
        raise InputError(f"{path}: is {is_}, input '{name}' takes {takes}: use --resize {fit}{_cutting(wanted)}")


def _cutting(wanted: tuple[int | None, int | None]) -> str:
    """What else brings a picture to the size that is wanted, where the model has one."""
    return ", or --preset imagenet, which cuts the middle" if None not in wanted else ""


def _arranged(pixels: np.ndarray, info: TensorInfo, layout: ImageLayout, asked: Preprocessing) -> np.ndarray:
    """[height, width, channels] in the input's type, rank and layout."""
    assert info.dtype is not None
    made = np.empty(_arranged_shape(pixels.shape, info, layout), info.dtype)
    flat = made.reshape(made.shape[-3:]) if made.ndim > 2 else made[None]
    view = flat if layout == "nhwc" and made.ndim > 2 else flat.transpose(1, 2, 0)
    if info.dtype == np.uint8:
        view[...] = pixels if pixels.dtype == np.uint8 else np.rint(pixels * (255 / 65535))
    else:
        _scale_into(view, pixels, asked)
    return made


def _arranged_shape(size: tuple[int, ...], info: TensorInfo, layout: ImageLayout) -> tuple[int, ...]:
    """The shape of an image of height, width, channels in the input's rank and layout."""
    rank = 4 if info.shape is None else len(info.shape)
    if rank == 2:
        return size[:2]
    shape = size if layout == "nhwc" else (size[2], *size[:2])
    return (1, *shape) if rank == 4 else shape


def _scale_into(view: np.ndarray, pixels: np.ndarray, asked: Preprocessing) -> None:
    """(pixels × scale − mean) / std, cut off at bounds, in float32."""
    channels = pixels.shape[2]
    scale = np.float32(unit_scale(pixels.dtype) if asked.scale is None else asked.scale)
    means = None if asked.mean is None else _per_channel("--mean", asked.mean, channels)
    deviations = None if asked.std is None else _per_channel("--std", asked.std, channels)
    for top in range(0, len(pixels), ROWS_AT_A_TIME):
        for channel in range(channels):
            values = pixels[top : top + ROWS_AT_A_TIME, :, channel].astype(np.float32)
            values *= scale
            if means is not None:
                values -= means[channel]
            if deviations is not None:
                values /= deviations[channel]
            if asked.bounds is not None:
                np.clip(values, *asked.bounds, out=values)
            view[top : top + ROWS_AT_A_TIME, :, channel] = values


def _per_channel(option: str, values: tuple[float, ...], channels: int) -> np.ndarray:
    if len(values) not in (1, channels):
        several = f"{channels} channels: give 1 or {channels}" if channels > 1 else "one channel: give one"
        raise InputError(f"{option} has {len(values)} numbers, the image {several}")
    return np.broadcast_to(np.asarray(values, np.float32), channels)
