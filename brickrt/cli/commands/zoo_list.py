"""`brickrt zoo list`: prints the networks of the zoo."""

from __future__ import annotations

from dataclasses import asdict

from brickrt import zoo
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.terminal.text import extents_text, shapes_text, table
from brickrt.zoo import Entry


def command(json: bool) -> str:
    """The networks as a table, or as JSON."""
    entries = [zoo.describe(name) for name in zoo.names()]
    if json:
        return to_json({"networks": [{**asdict(entry), "channels": entry.channels} for entry in entries]})
    rows = [(e.name, e.title, _inputs_text(e), e.source) for e in entries]
    return table(("name", "network", "input", "source"), rows)


def _inputs_text(entry: Entry) -> str:
    """Extents behind the batch; with names where there are several inputs."""
    shapes = {each.name: each.extents("batch", entry.default_size)[1:] for each in entry.inputs}
    return shapes_text(shapes) if len(shapes) > 1 else extents_text(next(iter(shapes.values())))
