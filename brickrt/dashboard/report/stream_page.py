"""The report of a run in bounded memory: one page of its memory over time, its passes and its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, TextIO

from brickrt.dashboard.report.memory_chart import MemoryOverTime, memory_chart
from brickrt.dashboard.report.page_parts import HEAD, cards, definitions, style

PAGE = (
    HEAD
    + """</head>
<body>
<h1>{title}</h1>
<div class="cards">{cards}</div>
<section><h2>Memory over time</h2><p class="hint">What the process had resident, from the beginning of the run.</p>
<div class="scroll">{chart}</div></section>
<section><h2>Passes</h2><table><tr><th class="text">pass</th><th>seconds</th></tr>{passes}</table></section>
<section><h2>Environment</h2><dl>{environment}</dl></section>
<script id="data" type="application/json">{data}</script>
</body>
</html>
"""
)


def write_stream_report(
    out: TextIO, told: Mapping[str, Any], about: Mapping[str, Any], passes: Mapping[str, float], memory: MemoryOverTime
) -> None:
    """Writes the page. `told` is what `run --json` says, which the page holds as its data; `about` has `title` and,
    each a mapping of names to text, `summary` and `environment`; `passes` are the seconds of each by name."""
    out.write(
        PAGE.format(
            title=escape(str(about["title"])),
            style=style(),
            cards=cards(about["summary"]),
            chart=memory_chart(memory),
            passes="".join(
                f'<tr><td class="text">{escape(name)}</td><td>{seconds:.2f}</td></tr>'
                for name, seconds in passes.items()
            ),
            environment=definitions(about["environment"]),
            # "<" would end the element that holds the data
            data=json.dumps(told, separators=(",", ":")).replace("<", "\\u003c"),
        )
    )
