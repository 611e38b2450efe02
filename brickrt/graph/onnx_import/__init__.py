"""Import: from files and protobuf messages to `SourceGraph`, which is ONNX as it is, checked."""
