"""ONNX nodes that run whole on the host, in NumPy, and values that are known before a run."""
