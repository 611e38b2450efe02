"""Matrix products, and the moves around them, in one form: many rows, one product of an input, one copy at most."""
