"""`Runtime`, its engines, and what it keeps between calls."""
