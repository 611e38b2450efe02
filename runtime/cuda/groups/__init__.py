"""Groups of padded bricks whose products cuDNN computes."""
