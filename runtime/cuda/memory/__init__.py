"""A program's memory on the device."""
