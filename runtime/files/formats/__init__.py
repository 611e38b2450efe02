"""One module for each file format: its sources and its sinks."""
