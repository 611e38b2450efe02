"""CPU engine."""
