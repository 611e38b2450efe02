"""Which nodes run merged, in which bricks and by which strategy."""
