"""Text of traits: structs of compile-time constants that the templates in headers/ are instantiated with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table_text(kind: str, name: str, values: Sequence[int]) -> str:
    """A static function that looks entry k up in an array; a constant where k is one. Takes no values, too."""
    entries = ", ".join(map(str, values))
    return f"static BRICK_DEVICE constexpr {kind} {name}(int k) {{ const {kind} v[] = {{{entries}}}; return v[k]; }}\n"


def choose_text(kind: str, name: str, values: Sequence[int]) -> str:
    """A static function that chooses entry k by comparisons: no array is left in memory where k is not a constant."""
    cases = "".join(f"k == {k} ? {v} : " for k, v in enumerate(values[:-1]))
    return f"static constexpr BRICK_DEVICE {kind} {name}(int k) {{ return {cases}{values[-1]}; }}\n"


def constants_text(values: Mapping[str, int]) -> str:
    """Static constants by name, of type int, or bool where the value is one."""
    kinds = {name: ("bool", bool_text(v)) if isinstance(v, bool) else ("int", v) for name, v in values.items()}
    return "".join(f"static constexpr {kind} {name} = {text};\n" for name, (kind, text) in kinds.items())


def bool_text(value: bool) -> str:
    """A bool as C++ writes it."""
    return "true" if value else "false"
