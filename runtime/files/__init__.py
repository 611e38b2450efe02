"""Arrays in files, read and written box by box, and the journal of a run that can be resumed."""
