"""Products by AMX: an instruction multiplies a tile of 16 pixels by one of 16 output channels, 64 bytes of K at once."""
