"""The shared memory of a multiprocessor, and how much of it each of its blocks may have."""

from __future__ import annotations

RESERVED = 1 << 10
"""Bytes that CUDA takes for each block; a multiprocessor has so many more than it gives to one block."""
BLOCK_KEPT_BYTES = 1536
"""Bytes that a block keeps for itself (schedule.cuh); what its device functions ask for comes on top."""
LEAST_BLOCK_BYTES = 99 << 10
"""Bytes that every GPU with the instructions of our kernels gives to one block."""


FUSED, FUSED_IN_PLACE = 32 << 10, 17 << 10
"""Bytes that device functions take at most beside the intermediates of a fused brick; and where all products read their
first factor in place."""


def of_multiprocessor(most: int) -> int:
    """Bytes of a multiprocessor of a device that gives a block at most `most`."""
    return most + RESERVED


def room(most: int, blocks: int) -> int:
    """Bytes that a block's device functions may take where `blocks` of them share such a multiprocessor."""
    return of_multiprocessor(most) // blocks - RESERVED - BLOCK_KEPT_BYTES


def most_with(functions: int) -> int:
    """What a device gives a block whose two blocks have room for so many bytes of device functions each."""
    return 2 * (functions + RESERVED + BLOCK_KEPT_BYTES) - RESERVED


def fused_room(most: int, functions: int) -> int:
    """Bytes that the intermediates of a fused brick may take on a device that gives a block at most `most`, beside
    those of device functions."""
    return most - BLOCK_KEPT_BYTES - functions


def fused_blocks(most: int, held: int) -> int:
    """Blocks of such a multiprocessor that hold so many bytes each, of intermediates and device functions."""
    return of_multiprocessor(most) // (RESERVED + BLOCK_KEPT_BYTES + held)
