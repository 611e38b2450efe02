"""What commands write: arrays, files, JSON and tables."""
