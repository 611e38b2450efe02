"""What a run in bounded memory is planned as and did, as text."""

from __future__ import annotations

import textwrap

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import printable
from brickrt.dashboard.units import size_text

PARTS = {
    "runtime": "process",
    "compiling": "compiling",
    "constants": "weights",
    "persistent": "kept rows",
    "arena": "band",
    "scratch": "scratch",
    "tables": "tables",
    "buffers": "files",
}


COLUMNS, HARD = 79, "\u2007"  # of a line about memory, which is not broken at such a space
SHOWN_TENSORS = 8  # that are spilled; --json has all


def plan_text_of(told: Json) -> str:
    """The plan: how the network is cut, what grows with its square, its memory by part, and what is spilled; or what
    windows it runs on."""
    if "window" in told:
        return _windows_text(told)
    strips = "×".join(map(str, told["strips"])) or "1"
    return "\n".join(
        (
            f"passes   {told['passes']}, each down {told['rows']} rows in bands of {told['band_rows']}, "
            f"{told['bands']} in all",
            f"strips   {strips}" + ("" if strips.strip("1×") else ": rows are whole"),
            *_attention_lines(told),
            *_weights_lines(told),
            _memory_text(told),
            *_spill_lines(told),
        )
    )


def _weights_lines(told: Json) -> list[str]:
    """What weights may take, where fewer are transformed than would be fastest."""
    if (most := told.get("transformed_bytes")) is None:
        return []
    return [f"weights  transformed ones take at most {size_text(most)} more than the model's: memory is scarce"]


def _attention_lines(told: Json) -> list[str]:
    """The arithmetic that grows with the square of the image."""
    found = told["attention"]
    if not found:
        return []
    share = sum(one["flops"] for one in found)
    most = max(one["positions"] for one in found)
    return [
        f"work     {share / 1e9:,.0f} of {told['flops'] / 1e9:,.0f} GFLOP in {len(found)} attention, "
        f"over up to {most:,} positions:\n         twice the height and the width take 16 times as much"
    ]


def _memory_text(told: Json) -> str:
    parts = sorted(PARTS, key=lambda part: -told["memory"][part])
    allowed = f"{size_text(told['projected_bytes'])} projected, {size_text(told['limit_bytes'])} allowed"
    each = ", ".join(f"{PARTS[part]} {size_text(told['memory'][part])}".replace(" ", HARD) for part in parts)
    return textwrap.fill(f"memory   {allowed}: {each}", COLUMNS, subsequent_indent=" " * 9).replace(HARD, " ")


def _windows_text(told: Json) -> str:
    """What blended windows there are, and that the result is not the exact one."""
    ran = f"{told['windows_run']} run of " if "windows_run" in told else ""
    windows = f"windows  {ran}{told['windows']}, weights {told['blend']}"
    return "\n".join((f"result   {told['result']}", windows, _memory_text(told)))


def _spill_lines(told: Json) -> list[str]:
    """What is spilled, with the passes that write and read it, and the disk for which that was chosen."""
    spilled, disk, lines = told["spilled"], told["disk"], []
    if disk and disk["why"]:
        lines.append(f"spilled  nothing: {printable(disk['why'])}")
    elif spilled:
        total = size_text(sum(one["bytes"] for one in spilled))
        lines.append(f"spilled  {len(spilled)} tensor{'s' * (len(spilled) > 1)}, {total} in all")
    for one in spilled[:SHOWN_TENSORS]:
        read = ", ".join(map(str, one["read_in"])) or "none"
        lines.append(
            f"         '{printable(one['tensor'])}' {size_text(one['bytes'])}: "
            f"written in pass {one['written_in']}, read in {read}"
        )
    if spilled[SHOWN_TENSORS:]:
        lines.append(f"         and {len(spilled) - SHOWN_TENSORS} more, which --json lists")
    if disk and disk["write"]:
        speeds = (size_text(int(disk[word])) for word in ("write", "read"))
        lines.append("disk     {}/s written, {}/s read".format(*speeds) + f" in {printable(disk['folder'])}, measured")
    return lines


def stream_text(told: Json) -> str:
    """The run: its plan or its windows, the memory that it took, its times and files."""
    written = [*told["outputs"].values(), *([told["report"]] if "report" in told else [])]
    spent = ", ".join(f"{word} {told[f'{word}_s']:.2f} s" for word in ("plan", "compile", "run"))
    return "\n".join(
        (
            plan_text_of(told),
            f"peak     {size_text(told['peak_bytes'])} measured",
            *(() if "window" in told else (f"bands    {told['bands_run']} run of {told['bands']}",)),
            *((f"values   {told['nonfinite']} not finite",) if told.get("nonfinite") else ()),
            f"time     {spent}",
            f"files    {size_text(told['bytes_read'])} read, {size_text(told['bytes_written'])} written",
            f"written  {printable(', '.join(written))}",
        )
    )
