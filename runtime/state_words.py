"""The state words of brick tasks: one word per task holds `epoch * 4 + state`.

Words only grow; a word of an older epoch counts as not started, so a run takes the next epoch instead of clearing
words. Memory of zeros is epoch 0: runs start at epoch 1. Tests check models of the protocols by which workers and
blocks use the words, in every interleaving.
"""

from __future__ import annotations

NOT_STARTED, IN_PROGRESS, COMPLETE = 0, 1, 2


def word(epoch: int, state: int) -> int:
    """The word of a task that is in `state` in run `epoch`."""
    return epoch * 4 + state
