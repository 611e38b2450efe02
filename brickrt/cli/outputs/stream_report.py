"""What a run in bounded memory is planned as and did, as text."""

from __future__ import annotations

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import printable
from brickrt.dashboard.units import size_text
from brickrt.runtime.stream.stream_report import StreamProgress

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


SHOWN = 8  # spilled tensors; --json has all


def plan_text_of(told: Json) -> str:
    """The plan: how the network is cut, its memory by part, and what is spilled."""
    parts = sorted(PARTS, key=lambda part: -told["memory"][part])
    strips = "×".join(map(str, told["strips"])) or "1"
    return "\n".join(
        (
            f"passes   {told['passes']}, each down {told['rows']} rows in bands of {told['band_rows']}, "
            f"{told['bands']} in all",
            f"strips   {strips}" + ("" if strips.strip("1×") else ": rows are whole"),
            f"memory   {size_text(told['projected_bytes'])} projected, {size_text(told['limit_bytes'])} allowed: "
            + ", ".join(f"{PARTS[part]} {size_text(told['memory'][part])}" for part in parts),
            *_spill_lines(told),
        )
    )


def _spill_lines(told: Json) -> list[str]:
    """What is spilled, with the passes that write and read it, and the disk for which that was chosen."""
    spilled, disk, lines = told["spilled"], told["disk"], []
    if disk and disk["why"]:
        lines.append(f"spilled  nothing: {printable(disk['why'])}")
    elif spilled:
        total = size_text(sum(one["bytes"] for one in spilled))
        lines.append(f"spilled  {len(spilled)} tensors, {total} in all")
    for one in spilled[:SHOWN]:
        read = ", ".join(map(str, one["read_in"])) or "none"
        lines.append(
            f"         '{printable(one['tensor'])}' {size_text(one['bytes'])}: "
            f"written in pass {one['written_in']}, read in {read}"
        )
    if spilled[SHOWN:]:
        lines.append(f"         and {len(spilled) - SHOWN} more, which --json lists")
    if disk and disk["write"]:
        speeds = (size_text(int(disk[word])) for word in ("write", "read"))
        lines.append("disk     {}/s written, {}/s read".format(*speeds) + f" in {printable(disk['folder'])}, measured")
    return lines


def stream_text(told: Json) -> str:
    """The run: its plan, the memory that it took, its times and files."""
    spent = ", ".join(f"{word} {told[f'{word}_s']:.2f} s" for word in ("plan", "compile", "run"))
    return "\n".join(
        (
            plan_text_of(told),
            f"peak     {size_text(told['peak_bytes'])} measured",
            f"bands    {told['bands_run']} run of {told['bands']}",
            f"time     {spent}",
            f"files    {size_text(told['bytes_read'])} read, {size_text(told['bytes_written'])} written",
            f"written  {printable(', '.join(told['outputs'].values()))}",
        )
    )


def progress_text(told: StreamProgress) -> str:
    """A line for the screen."""
    where = f"pass {told.sweep + 1}/{told.sweeps}, " if told.sweeps > 1 else ""
    moved = f"{size_text(told.bytes_read)} read, {size_text(told.bytes_written)} written"
    left = "" if told.left_s is None else f", {_time_text(told.left_s)} left"
    return f"{where}row {told.rows}/{told.all_rows}, {moved}{left}"


def _time_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"
