"""Live dashboard, trace and report."""
