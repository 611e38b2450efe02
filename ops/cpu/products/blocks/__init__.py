"""Products with constants of few bits, which stay so in memory."""
