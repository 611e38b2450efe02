"""Images as input tensors."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from brickrt.cli.requests import ImageLayout, ImageRequest
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.protobuf import TensorInfo

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: Path, name: str, info: TensorInfo, request: ImageRequest) -> np.ndarray:
    """The image in the type, rank and layout that input `name` takes. Its size is changed only where that was asked."""
    _check_taken(path, name, info, request)
    layout = request.layout or _layout(info)
    height, width, channels = _expected(info, layout)
    pixels = _pixels(path, name, channels, request.resize)
    _check_size(path, name, info, pixels.shape[:2], (height, width))
    values = _scaled(pixels, info, request)
    return np.ascontiguousarray(_arranged(values, info, layout))


def _check_taken(path: Path, name: str, info: TensorInfo, request: ImageRequest) -> None:
    assert info.dtype is not None
    if not (_is_float(info.dtype) or info.dtype == np.uint8) or (info.shape and len(info.shape) not in (2, 3, 4)):
        raise InputError(f"{path}: input '{name}' {describe(info)} takes no image: give a .npy file")
    unfit = [option for option in request.given() if option in ("--mean", "--std", "--scale")]
    if info.dtype == np.uint8 and unfit:
        raise InputError(f"{unfit[0]}: input '{name}' {describe(info)} takes bytes as they are: leave it out")


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _layout(info: TensorInfo) -> ImageLayout:
    """Channels last where only the last dimension can be channels."""
    shape = info.shape or ()
    first_taken = len(shape) >= 3 and shape[-3] in MODES
    return "nhwc" if len(shape) >= 3 and shape[-1] in MODES and not first_taken else "nchw"


def _expected(info: TensorInfo, layout: ImageLayout) -> tuple[int | None, int | None, int | None]:
    """Height, width and channels, None where the model leaves them open."""
    if info.shape is None:
        return None, None, None
    dims = [dim if isinstance(dim, int) else None for dim in info.shape]
    if len(dims) == 2:
        return dims[0], dims[1], 1
    if layout == "nhwc":
        return dims[-3], dims[-2], dims[-1]
    return dims[-2], dims[-1], dims[-3]


def _pixels(path: Path, name: str, channels: int | None, resize: tuple[int, int] | None) -> np.ndarray:
    """The image file as bytes [height, width, channels], resized if `resize` is given."""
    if channels is not None and channels not in MODES:
        raise InputError(f"{path}: input '{name}' has {channels} channels, images have 1, 3 or 4: give a .npy file")
    if find_spec("PIL") is None:
        raise InputError(f'{path}: reading images needs Pillow: pip install "brickrt[images]"')
    image = _opened(path)
    mode = MODES[channels] if channels else "L" if image.mode in ("1", "L") else "RGB"
    image = image.convert(mode)
    if resize:
        image = _resized(image, resize)
    pixels = np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _opened(path: Path) -> Image:
    from PIL import Image, ImageOps, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # the file is the user's own, and large images are what brickrt is for
    try:
        image = Image.open(path)
        image.load()
    except UnidentifiedImageError as e:
        raise InputError(f"{path}: is no image that can be read: save it again as .png or .jpg") from e
    except (OSError, SyntaxError, ValueError, EOFError) as e:
        raise InputError(f"{path}: is damaged ({e}): save it again") from e
    if image.mode.startswith(("I", "F")):
        raise InputError(f"{path}: has more than 8 bits per channel: convert it, or give a .npy file")
    return ImageOps.exif_transpose(image)  # the right way up, as cameras note it


def _resized(image: Image, size: tuple[int, int]) -> Image:
    from PIL.Image import Resampling

    return image.resize((size[1], size[0]), Resampling.BILINEAR)


def _check_size(
    path: Path, name: str, info: TensorInfo, got: tuple[int, ...], wanted: tuple[int | None, int | None]
) -> None:
    if any(w is not None and w != g for g, w in zip(got, wanted)):
        fit = "x".join(str(g if w is None else w) for g, w in zip(got, wanted))
        raise InputError(
            f"{path}: is {got[0]}x{got[1]} (height x width), input '{name}' takes {describe(info)}: use --resize {fit}"
        )


def _scaled(pixels: np.ndarray, info: TensorInfo, request: ImageRequest) -> np.ndarray:
    """(pixels * scale - mean) / std, in float32."""
    assert info.dtype is not None
    if info.dtype == np.uint8:
        return pixels
    scale = 1 / 255 if request.scale is None else request.scale
    if not np.isfinite(scale) or scale == 0:
        raise InputError(f"--scale {scale} is impossible: give a number such as 1, or 0.00392 for 1/255")
    values = pixels.astype(np.float32) * np.float32(scale)
    if request.mean is not None:
        values -= _per_channel("--mean", request.mean, pixels.shape[2])
    if request.std is not None:
        values /= _per_channel("--std", request.std, pixels.shape[2])
    return values.astype(info.dtype, copy=False)


def _per_channel(option: str, values: tuple[float, ...], channels: int) -> np.ndarray:
    if len(values) not in (1, channels):
        raise InputError(f"{option} has {len(values)} numbers, the image {channels} channels: give 1 or {channels}")
    return np.asarray(values, np.float32)


def _arranged(values: np.ndarray, info: TensorInfo, layout: ImageLayout) -> np.ndarray:
    """[height, width, channels] in the input's rank and layout."""
    rank = 4 if info.shape is None else len(info.shape)
    if rank == 2:
        return values[:, :, 0]
    moved = values if layout == "nhwc" else values.transpose(2, 0, 1)
    return moved[None] if rank == 4 else moved
