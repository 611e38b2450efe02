"""Models compiled into one file, and run from it without a compiler."""
