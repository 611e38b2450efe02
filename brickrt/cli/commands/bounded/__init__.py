"""Commands in bounded memory that load far less than those in core."""
