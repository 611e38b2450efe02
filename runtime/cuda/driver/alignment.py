"""Where pieces of device memory begin."""

ALIGNMENT = 256  # bytes, as allocations have


def aligned_size(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
