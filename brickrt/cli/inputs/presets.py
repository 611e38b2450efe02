"""Presets: what networks of a family take of pictures and volumes, by name, and what a model says of its own input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from brickrt.cli.requests import ImageLayout, ImageRequest, Preset
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.files.model_inputs import Pixels


@dataclass(frozen=True)
class Preprocessing:
    """How pixels become a tensor: (pixel × scale − mean) / std in float32, cut off at `bounds`.

    `scale` None brings whole numbers of pictures to at most 1. The size becomes `resize`, height and width; or the
    short side becomes `short_side` pixels and a square of `crop` pixels is cut from the middle, both where the model
    leaves its size open: else the model's size is cut, and the short side is larger in proportion. `swapped` channels
    are blue, green, red.
    """

    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    bounds: tuple[float, float] | None = None
    layout: ImageLayout | None = None
    resize: tuple[int, int] | None = None
    short_side: int | None = None
    crop: int | None = None
    bicubic: bool = False
    swapped: bool = False

    def pixels(self) -> Pixels:
        """What is done to the values of files that are read box by box."""
        return Pixels(self.scale, self.mean, self.std, self.bounds, images=True)

    @property
    def resizes(self) -> bool:
        """Whether pictures may change their size."""
        return self.resize is not None or self.crop is not None


PRESETS: Mapping[Preset, Preprocessing] = {
    "imagenet": Preprocessing(None, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), short_side=256, crop=224),
    "clip": Preprocessing(
        None,
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
        short_side=224,
        crop=224,
        bicubic=True,
    ),
    "unit": Preprocessing(),
    "raw": Preprocessing(scale=1.0),
    "ct": Preprocessing(scale=1 / 2000, mean=(-0.5,), bounds=(0.0, 1.0)),  # -1000 to 1000 Hounsfield units
}

# what ONNX lets a model say of an input that is an image, among its metadata_props
RANGE, FORMAT = "Image.NominalPixelRange", "Image.BitmapPixelFormat"
RANGES: Mapping[str, Preprocessing] = {
    "NominalRange_0_255": Preprocessing(scale=1.0),
    "Normalized_0_1": Preprocessing(),
    "Normalized_1_1": Preprocessing(scale=2 / 255, mean=(1.0,)),
    "NominalRange_16_235": Preprocessing(scale=219 / 255, mean=(-16.0,)),
}


def preprocessing(source: SourceGraph, asked: ImageRequest) -> Preprocessing:
    """What was asked for: the preset, else what the model says, with the options that were given in its place."""
    chosen = _said_by(source) if asked.preset is None else PRESETS[asked.preset]
    if asked.mean is not None or asked.std is not None or asked.scale is not None:
        chosen = replace(chosen, bounds=None)
    chosen = replace(
        chosen,
        mean=chosen.mean if asked.mean is None else asked.mean,
        std=chosen.std if asked.std is None else asked.std,
        scale=chosen.scale if asked.scale is None else asked.scale,
        layout=asked.layout,
    )
    return chosen if asked.resize is None else replace(chosen, resize=asked.resize, short_side=None, crop=None)


def _said_by(source: SourceGraph) -> Preprocessing:
    """What the model's own metadata says of its pixels; of one that says nothing, whole numbers become 0 to 1."""
    told = {entry.key: entry.value for entry in source.light.metadata_props}
    said = told.get(RANGE)
    if said is not None and said not in RANGES:
        raise InputError(f"the model says {RANGE}={said}, which is unknown: give --preset, or --scale and --mean")
    chosen = Preprocessing() if said is None else RANGES[said]
    return replace(chosen, swapped=told.get(FORMAT, "").lower().startswith("bgr"))
