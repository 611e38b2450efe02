"""From a source graph and concrete input shapes to a graph of brick operators."""
