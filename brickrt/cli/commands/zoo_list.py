"""`brickrt zoo list`."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict

from brickrt import zoo
from brickrt.cli.terminal.text import extents_text, table


def command(json: bool) -> str:
    entries = [zoo.describe(name) for name in zoo.names()]
    if json:
        return json_format.dumps({"networks": [asdict(entry) for entry in entries]}, indent=2)
    rows = [(e.name, e.title, extents_text((e.channels, *e.default_size)), e.source) for e in entries]
    return table(("name", "network", "input", "source"), rows)
