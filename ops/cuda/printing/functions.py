"""Text of device functions: the heads that every kernel's function has."""

from __future__ import annotations

from collections.abc import Iterable


def function_text(head: str, lines: Iterable[str]) -> str:
    """A device function (or member) with the given head; empty lines are left out."""
    return "\n".join([f"BRICK_DEVICE {head} {{", *(line for line in lines if line), "}\n"])


def device_function(name: str, *lines: str) -> str:
    """The function that `Kernel.emit` promises: it computes box `s` of the node's output on the operands at `at`."""
    return function_text(f"void {name}(const brick::Step& s, char* const* at, char* shared)", lines)


def declare_pointer(name: str, slot: int, kind: str) -> str:
    """Declares a pointer to operand `slot` (0 is the output) with elements of C++ type `kind`."""
    return f"const auto {name} = brick::global(({'const ' if slot else ''}{kind}*)at[{slot}]);"
