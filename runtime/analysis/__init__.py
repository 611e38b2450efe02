"""Modelled figures of a task graph: memory, cache behaviour, traffic."""
