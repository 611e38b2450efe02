"""`brickrt compare`: two reports of runs beside each other."""

from __future__ import annotations

from brickrt.cli.files import check_writable, write_text
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.requests import CompareRequest
from brickrt.cli.terminal.browser import check_opened, open_page
from brickrt.cli.terminal.text import printable, table
from brickrt.dashboard.report.compare_page import write_comparison
from brickrt.dashboard.report.compared_reports import ComparedLayers, RunReport, compared_layers, read_report
from brickrt.runtime.files.identity import FilesRead

SHOWN_ROWS, NAME_COLUMNS = 14, 34  # rows of the table, and columns of a name


def command(request: CompareRequest) -> str:
    """Compares the reports; gives what is printed of that."""
    check_opened(request.opened, request.html, "--html")
    if request.html is not None:
        FilesRead([request.first, request.second]).check("--html", request.html, "one of the reports")
        check_writable(request.html)
    first, second = read_report(request.first), read_report(request.second)
    layers = compared_layers(first, second)
    if request.html is not None:
        write_text(request.html, lambda out: write_comparison(out, first, second, layers))
        if request.opened:
            open_page(request.html)
    if request.json:
        told = {"first": _told(first), "second": _told(second), "layers": [each.to_dict() for each in layers]}
        return to_json(told | ({"written": {"html": str(request.html)}} if request.html else {}))
    lines = [*_lines(first, second, layers)]
    return "\n".join([*lines, *([f"written  {printable(str(request.html))}"] if request.html else [])])


def _told(report: RunReport) -> dict[str, object]:
    return {"file": report.path, "title": report.title, "busy_us": report.busy_us, "summary": report.summary}


def _lines(first: RunReport, second: RunReport, layers: list[ComparedLayers]) -> list[str]:
    shown = sorted(layers, key=lambda each: -abs(each.more_us))[:SHOWN_ROWS]
    heads = ("layers", "first ms", "second ms", "more ms", "strategies")
    rows = [
        (
            each.name if len(each.name) <= NAME_COLUMNS else each.name[: NAME_COLUMNS - 1] + "…",
            f"{each.first_us / 1e3:.3f}",
            f"{each.second_us / 1e3:.3f}",
            f"{each.more_us / 1e3:+.3f}",
            each.first if each.first == each.second else f"{each.first} → {each.second}",
        )
        for each in shown
    ]
    more = [f"and {len(layers) - SHOWN_ROWS} more"] if len(layers) > SHOWN_ROWS else []
    return [
        f"first    {_line(first)}",
        f"second   {_line(second)}, ×{second.busy_us / first.busy_us:.3f} of the first"
        if first.busy_us
        else f"second   {_line(second)}",
        "",
        *table(heads, rows, right=heads[1:4], shrinks=("strategies",)).splitlines(),
        *more,
    ]


def _line(report: RunReport) -> str:
    return printable(f"{report.title}: {report.busy_us / 1e3:.3f} ms of worker time")
