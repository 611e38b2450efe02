"""The page of two reports beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TextIO

from brickrt.dashboard.report.compared_reports import ComparedLayers, RunReport
from brickrt.dashboard.report.page_parts import HEAD, cards, definitions, style

MOST_ROWS = 200  # of the layers that differ most

PAGE = (
    HEAD
    + """<style>.pair {{ display: grid; gap: 2px; }} .pair div {{ height: 7px; border-radius: 2px; }}
.first {{ background: var(--layerwise); }} .second {{ background: var(--padded); }}
.longer {{ color: var(--padded); }} .shorter {{ color: var(--memoized); }} td.bars {{ width: 30%; min-width: 110px; }}
.legend i.first, .legend i.second {{ margin-left: .2em; }}</style>
</head>
<body>
<h1>{title}</h1>
<div class="cards">{cards}</div>
<section><h2>Layers</h2>
<p class="hint">Time of all workers, of the smallest groups of layers that are whole in both; those that differ most
first.</p>
<div class="legend"><span><i class="first"></i> first: {first}</span><span><i class="second"></i> second:
{second}</span></div>
<div class="scroll"><table><tr><th class="text">layers</th><th>first</th><th>second</th><th>second − first</th>
<th class="text">beside each other</th><th class="text">strategy, first</th><th class="text">second</th></tr>
{rows}</table></div></section>
<section><h2>Figures</h2><div class="scroll"><table><tr><th class="text">figure</th><th>first</th><th>second</th></tr>
{figures}</table></div></section>
<section><h2>What is different around them</h2><dl>{environment}</dl></section>
</body>
</html>
"""
)


def write_comparison(out: TextIO, first: RunReport, second: RunReport, layers: Sequence[ComparedLayers]) -> None:
    """Writes the page."""
    ratio = second.busy_us / first.busy_us if first.busy_us else 0.0
    summary = {
        "worker time, first": _ms(first.busy_us),
        "worker time, second": _ms(second.busy_us),
        "second over first": f"×{ratio:.3f}",
        "layers that changed strategy": str(sum(each.first != each.second for each in layers)),
    }
    shown = sorted(layers, key=lambda each: -abs(each.more_us))[:MOST_ROWS]
    longest = max([1e-9, *(max(each.first_us, each.second_us) for each in shown)])
    out.write(
        PAGE.format(
            title=escape(f"{first.title} / {second.title}"),
            style=style(),
            cards=cards(summary),
            first=escape(first.path),
            second=escape(second.path),
            rows="\n".join(_row(each, longest) for each in shown),
            figures="\n".join(_figures(first, second)),
            environment=definitions(_differences(first, second)) or "<dt>nothing</dt>",
        )
    )


def _row(each: ComparedLayers, longest: float) -> str:
    bars = "".join(
        f'<div class="{name}" style="width:{100 * took / longest:.2f}%"></div>'
        for name, took in (("first", each.first_us), ("second", each.second_us))
    )
    change = "longer" if each.more_us > 0 else "shorter"
    nodes = escape(", ".join(each.nodes))
    return (
        f'<tr><td class="text name" title="{nodes}">{escape(each.name)}</td>'
        f"<td>{_ms(each.first_us)}</td><td>{_ms(each.second_us)}</td>"
        f'<td class="{change}">{each.more_us / 1e3:+.3f} ms</td>'
        f'<td class="bars"><div class="pair">{bars}</div></td>'
        f'<td class="text">{escape(each.first) or "–"}</td><td class="text">{escape(each.second) or "–"}</td></tr>'
    )


def _figures(first: RunReport, second: RunReport) -> Iterator[str]:
    """The figures of both; those whose name says a value that differs have a row each."""
    for name in dict.fromkeys((*first.summary, *second.summary)):
        values = (escape(str(report.summary.get(name, "–"))) for report in (first, second))
        yield f'<tr><td class="text">{escape(name)}</td>' + "".join(f"<td>{value}</td>" for value in values) + "</tr>"


def _differences(first: RunReport, second: RunReport) -> dict[str, str]:
    names = dict.fromkeys((*first.environment, *second.environment))
    both = {name: (str(first.environment.get(name, "–")), str(second.environment.get(name, "–"))) for name in names}
    return {name: f"{one} → {other}" for name, (one, other) in both.items() if one != other}


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms"
