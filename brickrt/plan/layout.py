"""The memory layouts of tensors.

"plain" is row-major in ONNX order. Images may have their channels (axis 1) innermost: on a CPU "blocked", in blocks of
`lanes` channels, on a GPU "last", all of them. Only tensors of rank ≥ 3 are images, and an operand that is one has the
rank of the tensor it broadcasts to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from brickrt.plan.device.device_spec import DeviceSpec

Layout = Literal["plain", "blocked", "last"]


@dataclass(frozen=True)
class ImageLayout:
    """The layout of images on a device.

    Channels lie in blocks of `lanes`. A convolution reads and writes images of up to `few` channels plain, since blocks
    would be mostly padding. `dtypes` names the element types that kernels take in this layout.
    """

    layout: Layout
    lanes: int
    few: int
    dtypes: str


def image_layout(device: DeviceSpec) -> ImageLayout:
    """How images lie on a device."""
    if device.kind == "cpu":
        return ImageLayout("blocked", device.lanes, few=4, dtypes="float16 bfloat16 float32 float64 uint8")
    return ImageLayout("last", 1, few=0, dtypes="float16 bfloat16 float32 float64")
