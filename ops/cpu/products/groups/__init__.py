"""Which groups of a convolution share a block of output channels, and how lanes get the input of their own."""
