"""Winograd convolutions whose products tile registers add, for processors that have these (AMX)."""
