"""The layer graph: import from ONNX, specialization to concrete shapes, folding and fusing."""
