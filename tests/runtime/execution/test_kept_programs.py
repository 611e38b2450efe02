"""What programs hold is counted once, and the least recently used go."""

from __future__ import annotations

from brickrt.runtime.execution.kept_programs import LEAST_PROGRAM_BYTES, KeptPrograms


def test_what_programs_share_is_counted_once():
    gone: list[str] = []
    kept = KeptPrograms(10 * LEAST_PROGRAM_BYTES)
    for name in "abc":
        kept.add(
            name, {1: 6 * LEAST_PROGRAM_BYTES, ord(name): LEAST_PROGRAM_BYTES}, lambda name=name: gone.append(name)
        )
    assert not gone  # 6 of all, 1 of each
    kept.add("d", {4: 3 * LEAST_PROGRAM_BYTES}, lambda: gone.append("d"))
    assert gone == ["a", "b"]  # the last that holds what was shared is still there
    kept.add("e", {5: 4 * LEAST_PROGRAM_BYTES}, lambda: gone.append("e"))
    assert gone == ["a", "b", "c"]  # and it is free with it
    kept.add("f", {6: 3 * LEAST_PROGRAM_BYTES}, lambda: gone.append("f"))
    assert gone == ["a", "b", "c"]


def test_a_program_of_the_same_key_takes_the_place_of_another():
    gone: list[int] = []
    kept = KeptPrograms(4 * LEAST_PROGRAM_BYTES)
    for turn in range(5):
        kept.add("a", {turn: 3 * LEAST_PROGRAM_BYTES}, lambda turn=turn: gone.append(turn))
    kept.add("b", {}, lambda: gone.append(-1))
    assert gone == []  # one of 3, and one that counts for the least
    kept.used("a")
    kept.add("c", {7: LEAST_PROGRAM_BYTES}, lambda: gone.append(-2))
    assert gone == [-1]
