"""Operators of ONNX whose reference visits every element in Python, in NumPy's own loops or compiled ones."""
