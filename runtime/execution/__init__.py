"""One call of a model: what runs a stage, and the report on it."""
