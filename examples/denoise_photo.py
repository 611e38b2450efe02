"""Takes the noise out of a photograph: python denoise_photo.py noisy.jpg clean.png

The network comes with brickrt; it takes pictures of any size. On the command line the same is
brickrt run denoiser.onnx --input noisy.jpg --output clean.png
"""

from __future__ import annotations

import sys
from importlib.resources import files

import numpy as np
from PIL import Image, ImageOps

import brickrt


def denoised(picture: Image.Image) -> Image.Image:
    """The picture without noise."""
    model = files("brickrt.demo").joinpath("denoiser.onnx").read_bytes()
    pixels = np.asarray(picture.convert("RGB"), np.float32) / 255  # [height, width, 3]
    with brickrt.Runtime(model) as runtime:
        given = {name: pixels.transpose(2, 0, 1)[None] for name in runtime.source.inputs}  # [1, 3, height, width]
        (clean,) = runtime.execute(given).values()
    return Image.fromarray(np.rint(clean[0].transpose(1, 2, 0) * 255).clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    _, noisy, clean = sys.argv
    denoised(ImageOps.exif_transpose(Image.open(noisy))).save(clean)
