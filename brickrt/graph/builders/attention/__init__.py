"""Attention, as the products, sums and softmax it consists of."""
