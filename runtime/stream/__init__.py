"""Runs a network band by band, from file to file, in a stated amount of memory."""
