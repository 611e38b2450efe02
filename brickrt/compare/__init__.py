"""Measuring brickrt beside its peers: engines, turns, differences, rooflines; `brickrt bench` and `bench/` share it.

A peer is another runtime (ONNX Runtime, OpenVINO, PyTorch, XLA); an engine is what takes part: brickrt or a peer.
"""
