"""The speeds of this machine, measured once."""
