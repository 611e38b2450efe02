"""Graphs: import from ONNX, specialization to concrete shapes, folding and fusing, nodes that run on the host."""
