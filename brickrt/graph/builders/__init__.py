"""ONNX operators to brick operators: one small builder each, by family."""
