"""Builders of normalizations."""
