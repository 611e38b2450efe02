"""Networks of attention. Importing this package registers them."""

from brickrt.zoo.networks.transformers import bert, vit_s16

__all__ = ["bert", "vit_s16"]
