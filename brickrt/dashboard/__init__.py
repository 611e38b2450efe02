"""What people look at: the live dashboard, the trace file and the report. They only read what engines write."""
