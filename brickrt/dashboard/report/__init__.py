"""The page and the trace of a run that has ended."""
