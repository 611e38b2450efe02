"""Which rows of tensors bands have, as numbers by band."""
