"""The five likeliest classes of each picture in a folder: python label_folder.py resnet50.onnx photos/

Pictures are resized and scaled as ImageNet's networks take them. On the command line the same is
brickrt run resnet50.onnx --input photos/ --preset imagenet --top 5
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import brickrt

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


def prepared(path: Path, edge: int) -> np.ndarray:
    """The middle of a picture, [3, edge, edge]."""
    picture = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    square = ImageOps.fit(picture, (edge * 8 // 7, edge * 8 // 7), Image.Resampling.BILINEAR)
    cut = edge // 14
    pixels = np.asarray(square.crop((cut, cut, cut + edge, cut + edge)), np.float32) / 255
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1).astype(np.float32)


def labelled(model: Path, folder: Path) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """For each picture its name, and the names and shares of the five likeliest classes."""
    names = files("brickrt.cli.results").joinpath("imagenet.txt").read_text("utf-8").splitlines()
    with brickrt.Runtime(model) as runtime:
        ((name, info),) = runtime.source.inputs.items()
        edge = info.shape[-1] if info.shape and isinstance(info.shape[-1], int) else 224
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)
        feeds = ({name: prepared(path, edge)[None]} for path in paths)
        for path, outputs in zip(paths, runtime.execute_many(feeds)):  # the next is read while one runs
            scores = next(iter(outputs.values()))[0].astype(np.float64)
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            yield path.name, [(names[k], float(shares[k])) for k in np.argsort(-shares)[:5]]


if __name__ == "__main__":
    for picture, classes in labelled(Path(sys.argv[1]), Path(sys.argv[2])):
        print(picture)
        for label, share in classes:
            print(f"  {share:6.1%}  {label}")
