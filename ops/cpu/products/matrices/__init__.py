"""Matrix products by register tiles, of constants of few bits as well, which stay so in memory."""
