"""Plans a whole network as a sweep of bands, so that it runs in a stated amount of memory."""
