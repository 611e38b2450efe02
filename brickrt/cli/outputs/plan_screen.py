"""A plan on a screen of 24 lines and 80 columns: its figures, and the subgraphs that take longest. More on request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.outputs.plan_compare import compare_table
from brickrt.cli.outputs.plan_report import fallback_lines
from brickrt.cli.outputs.plan_tree import plan_tree
from brickrt.cli.outputs.product_types import bfloat16_line, integer_line
from brickrt.cli.terminal.text import extents_text, printable, table
from brickrt.dashboard.labels import shorten
from brickrt.dashboard.units import size_text
from brickrt.plan.plan import Plan

LINES, COLUMNS = 23, 79  # of a screen, with the prompt below
LAYERS, OUTPUT, SHAPE = 34, 16, 52  # columns of names, of shapes, of the inputs' shapes


def plan_screen(report: Json, plans: Sequence[Plan], verbose: bool) -> str:
    """The plan for people, which fits a screen unless it is `verbose`: then it has all subgraphs with their layers, and
    says why each is what it is."""
    head, tail = list(_head(report, verbose)), list(_tail(report, verbose))
    room = LINES - len(head) - len(tail) - 3
    inside = _trees(plans) if verbose else _longest(report["plan"], max(3, room))
    return "\n".join([*head, *inside, *tail])


def _head(report: Json, verbose: bool) -> Iterator[str]:
    device, shapes = report["device"], [f"{name} {extents_text(dims)}" for name, dims in report["inputs"].items()]
    yield printable(f"model    {report['model']} ({_cut(', '.join(shapes), SHAPE, verbose) or 'no inputs'})")
    yield f"device   {device['name']}, {device['cores']} cores, {device['isa']}"
    parts = [f"{name} {size_text(n)}" for name, n in report["bytes"].items()] if verbose else []
    yield ": ".join([f"memory   {size_text(report['projected_bytes'])} projected", *filter(None, [", ".join(parts)])])
    yield f"work     {report['flops'] / 1e9:.3g} Gflop in {report['tasks']} tasks{_times(report)}"
    kinds = Counter(entry["strategy"] for entry in report["plan"])
    several = f" in {report['stages']} stages" if report["stages"] > 1 else ""
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    yield f"plan     {len(report['plan'])} subgraphs{several}: {counts}" if kinds else "plan     nothing to compute"


def _times(report: Json) -> str:
    modelled, layerwise = report["modelled_us"], report["layerwise_us"]
    if not math.isfinite(modelled) or not modelled:
        return ""
    return f"; modelled {modelled / 1e3:.3g} ms, layerwise {layerwise / 1e3:.3g} ms"


def _tail(report: Json, verbose: bool) -> Iterator[str]:
    """What is not in the plan, other strategies, and what was written."""
    if report["integers"]:
        yield integer_line(report["integers"])
    if report["bfloat16"]:
        yield bfloat16_line(report["bfloat16"])
    if verbose:
        yield from map(printable, fallback_lines(report["fallback"]))
    elif report["fallback"]:
        yield f"on the host: nodes without a kernel, {len(report['fallback'])}; -v says which, and why"
    if report["stages"] > 1 and verbose:
        yield "stages behind nodes on the host are planned for shapes that made up values have there"
    if report["later"]:
        nodes = [f"{entry['node']} ({entry['operator']})" for entry in report["later"]]
        known = nodes if verbose else [_cut(nodes[0], 40), *([f"{len(nodes) - 1} more"] if len(nodes) > 1 else [])]
        yield printable(f"planned when values are known: {', '.join(known)}")
    if "compare" in report:
        yield ""
        yield from compare_table(report["compare"]).splitlines()
        yield "auto has the least modelled time, which is not always the least traffic"
    for path in report.get("written", {}).values():
        yield f"written  {printable(path)}"


def _trees(plans: Sequence[Plan]) -> Iterator[str]:
    """All subgraphs and layers, stage by stage."""
    for number, plan in enumerate(plans):
        yield "" if len(plans) == 1 else f"\nstage {number}"
        yield from plan_tree(plan)


def _longest(entries: Sequence[Json], most: int) -> Iterator[str]:
    """The subgraphs that are modelled to take longest, in the order in which they run."""
    if not entries:
        return
    order = sorted(range(len(entries)), key=lambda k: -entries[k]["modelled_us"])
    shown = sorted(order[: most if len(entries) <= most else most - 1])
    rows = [_row(number, entries[number]) for number in shown]
    heads = ("#", "strategy", "layers", "output", "tasks", "ms")
    yield ""
    yield from table(heads, rows, right=("#", "tasks", "ms")).splitlines()
    if len(entries) > len(shown):
        rest, every = (sum(entries[k]["modelled_us"] for k in of) for of in (order[len(shown) :], order))
        share = f" of {100 * rest / every:.0f} % of the time" if math.isfinite(every) and every else ""
        yield f"    and {len(entries) - len(shown)} more{share}; -v has all, and the reasons"


def _row(number: int, entry: Json) -> tuple[str, ...]:
    took = f"{entry['modelled_us'] / 1e3:.3g}" if math.isfinite(entry["modelled_us"]) else "-"
    layers, output = _cut(shorten(entry["ops"]), LAYERS), _cut(extents_text(entry["output_shape"]), OUTPUT)
    return str(number), entry["strategy"], layers, output, str(entry["tasks"]), took


def _cut(text: str, columns: int, whole: bool = False) -> str:
    return text if whole or len(text) <= columns else text[: columns - 1] + "…"
