"""Matrix products whose multiplications are in part replaced by additions, for processors that add beside them."""
