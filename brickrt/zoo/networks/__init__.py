"""The networks of the zoo, one per file. Importing this package registers them."""

from brickrt.zoo.networks import (
    bsrn,
    darknet53,
    deepcam,
    drn_c_26,
    inception_v4,
    mobilenetv2,
    nafnet,
    nerf,
    resnet34_3d,
    resnet50,
    transformers,
    unet,
    vgg16,
)

__all__ = [
    "bsrn",
    "darknet53",
    "deepcam",
    "drn_c_26",
    "inception_v4",
    "mobilenetv2",
    "nafnet",
    "nerf",
    "resnet34_3d",
    "resnet50",
    "transformers",
    "unet",
    "vgg16",
]
