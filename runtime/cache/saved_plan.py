"""A plan in a file of the user's: made once, run by other processes, to the same bits on equal hardware.

The file is JSON. Beside subgraphs it has all else that a plan depends on: options, the device with the speeds it was
planned with, and digests of the graph and of the code that planned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.runtime.cache.parse_json import is_count, is_figure, parse_json
from brickrt.runtime.cache.plan_cache import plan_digest, planning_code
from brickrt.runtime.cache.subgraph_codec import check, decode
from brickrt.version import VERSION

AGAIN = "make it again by brickrt plan --save"
NAMES = {"brickrt", "code", "device", "options", "inputs", "graph", "subgraphs", "digest"}


def plan_text(graph: Graph, plan: Plan) -> str:
    """The file of a plan. `graph` is what was planned: as specialized, in the precision of the options."""
    content = {
        "brickrt": VERSION,
        "code": planning_code(),
        "device": plan.device.to_dict(),
        "options": plan.options.to_dict(),
        "inputs": _inputs(graph),
        "graph": plan_digest(graph, plan.device, plan.options),
        "subgraphs": [subgraph.to_dict() for subgraph in plan.subgraphs],
    }
    return json.dumps(content | {"digest": _digest(content)}, indent=1) + "\n"


@dataclass(frozen=True)
class SavedPlan:
    """What a file says of a plan; `path` is named in errors."""

    path: Path
    content: Mapping[str, Any]
    device: DeviceSpec
    options: PlanOptions

    @staticmethod
    def read(path: Path, device: DeviceSpec, precision: str) -> SavedPlan:
        """Reads a file, for a device that is here. Raises BrickError where it is damaged, or for something else."""
        content = _content(path)
        try:
            planned, options = _device(content["device"], device), PlanOptions(**content["options"])
        except (TypeError, ValueError) as e:
            raise BrickError(f"{path}: is damaged ({e}): {AGAIN}") from None
        saved = SavedPlan(path, content, planned, options)
        saved._refuse(saved._differs(device, precision))
        return saved

    def plan(self, graph: Graph) -> Plan:
        """The plan, of the graph that was planned. Raises BrickError where it is another one."""
        self._refuse(self._is_for_another(graph))
        try:
            decided = decode(json.dumps(self.content["subgraphs"]).encode())
            return check(make_plan(graph, self.device, self.options, decided=decided))
        except (ValueError, ArithmeticError, LookupError) as e:  # the device's figures may be anything
            raise BrickError(f"{self.path}: is damaged ({e}): {AGAIN}") from None

    def _differs(self, device: DeviceSpec, precision: str) -> Iterator[str]:
        """How it does not fit, before a graph is known."""
        if self.device.kind != device.kind:
            yield f"is for a device of kind {self.device.kind}, this is {device.kind}"
        if self.device.isa != device.isa:
            yield f"is for {self.device.name} ({self.device.isa}), this is {device.name} ({device.isa})"
        if self.options.precision != precision:
            yield f"is for precision {self.options.precision}, asked for is {precision}"
        if self.content["code"] != planning_code():
            yield f"was made by other code, brickrt {self.content['brickrt']}; this is {VERSION}"

    def _is_for_another(self, graph: Graph) -> Iterator[str]:
        mine, here = self.content["inputs"], _inputs(graph)
        if mine != here:
            yield f"is for inputs {_told(mine)}, these are {_told(here)}"
        if self.content["graph"] != plan_digest(graph, self.device, self.options):
            yield "is for another graph than this model's"

    def _refuse(self, differences: Iterator[str]) -> None:
        for difference in differences:
            raise BrickError(f"{self.path}: the plan {difference}: {AGAIN}")


def _content(path: Path) -> dict[str, Any]:
    """What is in the file, as it was written."""
    try:
        content = parse_json(path.read_bytes())
    except OSError as e:
        raise BrickError(f"{path}: cannot be read ({e.strerror or e}): give a file of brickrt plan --save") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.keys() != NAMES:
        raise BrickError(f"{path}: is no plan: give a file of brickrt plan --save")
    digest = content.pop("digest")
    if digest != _digest(content):
        raise BrickError(f"{path}: was changed after it was written: {AGAIN}")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _inputs(graph: Graph) -> dict[str, str]:
    return {name: str(graph.types[name]) for name in graph.inputs}


def _told(inputs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in inputs.items()) or "none"


def _device(entry: Any, here: DeviceSpec) -> DeviceSpec:
    """The device of an entry, whose fields are of the same types as those of the device that is here."""
    names = {field.name for field in fields(DeviceSpec)}
    if not isinstance(entry, dict) or entry.keys() != names:
        raise ValueError("a device with other fields")
    return DeviceSpec(**{name: _like(getattr(here, name), name, value) for name, value in entry.items()})


def _like(model: Any, name: str, value: Any) -> Any:
    """A value as a field has it."""
    if isinstance(model, tuple) and isinstance(value, list) and all(map(is_count, value)):
        return tuple(value)
    if isinstance(model, Mapping) and isinstance(value, dict) and all(map(is_figure, value.values())):
        return value
    if type(value) is type(model) or (type(model) is float and type(value) is int):
        return value
    raise ValueError(f"{name} of a device: {value!r:.100}")
