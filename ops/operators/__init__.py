"""The brick operators, one file per family."""
