"""Passes that undo what makes networks fast, to see what it is worth."""
