"""Where ONNX Runtime keeps what it does not export at the top, and programs look for its errors."""
