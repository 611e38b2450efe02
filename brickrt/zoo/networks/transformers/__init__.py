"""Networks of attention. Importing this package registers them."""

from brickrt.zoo.networks.transformers import bert, conformer, mobilevit, restormer, swin, vit_s16

__all__ = ["bert", "conformer", "mobilevit", "restormer", "swin", "vit_s16"]
