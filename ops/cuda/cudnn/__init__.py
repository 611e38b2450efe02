"""Products that cuDNN computes: what it is asked for, how it is called, and how much of an operator it covers."""
