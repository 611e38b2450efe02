"""Networks of attention. Importing this package registers them."""

from brickrt.zoo.networks.transformers import bert, swin, vit_s16

__all__ = ["bert", "swin", "vit_s16"]
