"""What the engine needs of a device, and the device as CuPy gives it."""
