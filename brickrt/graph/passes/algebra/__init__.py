"""Algebra: rewrites by what operators compute, so that fewer elements are moved and fewer operations done."""
