"""Operators that ONNX's reference computes: what is known of them, and those it lacks or has only for newer opsets.

The reference passes attributes as keywords, also those of newer opsets: hence the ignored ones here and beside.
"""
