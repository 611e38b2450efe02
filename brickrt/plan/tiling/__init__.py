"""How a layer that runs on its own is cut into tasks."""
