"""From a plan to its task graph: bricks, order, and where tensors lie."""
