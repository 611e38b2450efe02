"""Specialization: from a source graph and concrete input shapes to graphs of brick operators."""
