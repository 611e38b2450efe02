"""An operator has one builder."""

from __future__ import annotations

import pytest

from brickrt.graph import builder


def test_a_second_builder_is_refused_unless_it_replaces_the_first(monkeypatch):
    known: dict[tuple[str, str], object] = {}
    monkeypatch.setattr(builder, "_BUILDERS", known)

    def first(*given: object) -> str:
        return "first"

    def second(*given: object) -> str:
        return "second"

    builder.builds("Neg", "Abs")(first)
    with pytest.raises(ValueError, match="Abs has a builder already"):
        builder.builds("Sign", "Abs")(second)
    assert known == {("", "Neg"): first, ("", "Abs"): first}
    builder.builds("Abs", domain="other")(second)
    builder.builds("Abs", replaces=True)(second)
    assert known == {("", "Neg"): first, ("", "Abs"): second, ("other", "Abs"): second}
