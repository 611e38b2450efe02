"""Images read between their pixels: at the same places of all rows and columns, or at points that are data."""
