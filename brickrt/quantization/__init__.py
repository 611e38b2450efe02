"""Quantizes models to bytes: ranges from calibration, noise of each layer, and a check of the result."""
