"""What a plan knows of a device, and what the operating system says of this machine."""
