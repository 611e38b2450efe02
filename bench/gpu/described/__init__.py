"""cuDNN's plans for devices that are only described: which forms of the zoo it takes there, on any machine."""
