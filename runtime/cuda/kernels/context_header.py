"""The C++ side of `kernel_context.py`, printed: a program's text has it between portable.cuh and schedule.cuh."""

from __future__ import annotations

from dataclasses import fields

from brickrt.runtime import state_words
from brickrt.runtime.cuda.kernels import kernel_context
from brickrt.runtime.cuda.kernels.kernel_context import Context

_NUMBERS = (
    *("SCRATCH", "BASE_SHIFT", "MOST_OPERANDS", "MOST_RANK", "HEAD_WORDS", "EVENT_WORDS", "COUNTS", "SHARED_BYTES"),
    *("BEGUN", "COUNT_WORDS"),
    *("HELD", "TICKET_WORDS", "CANCELLED", "HUNG", "STARTED_TWICE"),
)
_STATES = ("NOT_STARTED", "IN_PROGRESS", "COMPLETE")


def header() -> str:
    """The struct `brick::Context` and the numbers that both languages share."""
    words = [(f.name, f.metadata["ctype"], f.metadata["text"]) for f in fields(Context)]
    return "\n".join(
        [
            "namespace brick {",
            *(f"constexpr int {name} = {getattr(kernel_context, name)};" for name in _NUMBERS),
            *(f"constexpr unsigned {name} = {getattr(state_words, name)};" for name in _STATES),
            "struct Context {",
            *(f"    {ctype} {name};  // {text}" for name, ctype, text in words),
            "};",
            # words in this order and nothing between them; not all compilers for GPUs have offsetof
            f'static_assert(sizeof(Context) == {8 * len(words)}, "Context");',
            *(f'static_assert(sizeof(Context::{name}) == 8, "{name}");' for name, _, _ in words),
            "}  // namespace brick",
            "",
        ]
    )
