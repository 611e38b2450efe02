"""What cuDNN computes, as plain data and as its graphs."""
