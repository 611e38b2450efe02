"""Integer products and what follows them, up to the bytes that they store."""
