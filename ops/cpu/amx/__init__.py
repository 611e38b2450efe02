"""Products by AMX: an instruction multiplies 16 pixels by 16 output channels, 64 bytes of K at once."""
