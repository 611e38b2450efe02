"""The dashboard in a terminal, while a run goes on."""
