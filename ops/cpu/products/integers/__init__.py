"""Products of quantized integers: four channels to a word."""
