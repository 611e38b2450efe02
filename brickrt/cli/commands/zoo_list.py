"""`brickrt zoo list`: prints the networks of the zoo."""

from __future__ import annotations

from dataclasses import asdict

from brickrt import zoo
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.terminal.text import extents_text, table


def command(json: bool) -> str:
    """The networks as a table, or as JSON."""
    entries = [zoo.describe(name) for name in zoo.names()]
    if json:
        return to_json({"networks": [asdict(entry) for entry in entries]})
    rows = [(e.name, e.title, extents_text((e.channels, *e.default_size)), e.source) for e in entries]
    return table(("name", "network", "input", "source"), rows)
