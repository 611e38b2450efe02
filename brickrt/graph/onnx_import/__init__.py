"""From files and protobuf messages to `SourceGraph`: ONNX as it is, checked."""
