"""Products of elements of one or two bytes: adjacent channels are one word, whose products are added at once."""
