"""Subgraphs come back from their text as they were; a text that is no plan of the graph is refused, whatever it is."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec, host_device
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan, plan_subgraphs, with_subgraphs
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.parse_json import is_count, is_figure
from brickrt.runtime.cache.subgraph_codec import check, decode, encode


@cache
def plan_of(network: str, options: PlanOptions, gpu: bool = False) -> Plan:
    """A plan of a network of the zoo."""
    kind = TensorType((1, 3, 64, 64), np.dtype(np.float32))
    graph = specialize(first_stage(load(zoo.build(network, size=64))), {"x": kind}, {}).graph
    device: DeviceSpec = PRESETS["h100"] if gpu else replace(host_device(), tiles=False)
    return make_plan(graph, device, options)


def merged() -> Plan:
    """A plan with a subgraph of several nodes."""
    return plan_of("unet", PlanOptions("memoized", 8))


def changed(number: int, **fields: Any) -> bytes:
    """The text of the plan, one subgraph having other fields."""
    entries = json.loads(encode(merged().subgraphs))
    entries[number].update(fields)
    return json.dumps(entries).encode()


def several(plan: Plan) -> tuple[int, Subgraph]:
    """The first subgraph of several nodes, and its number."""
    return next((k, s) for k, s in enumerate(plan.subgraphs) if len(s.nodes) > 1)


@pytest.mark.parametrize("network", ["unet", "mobilenetv2"])
@pytest.mark.parametrize("strategy", ["auto", "padded", "memoized"])
@pytest.mark.parametrize("gpu", [False, True])
def test_plans_come_back(network, strategy, gpu):
    options = PlanOptions(strategy, None if strategy == "auto" else 7)
    plan = plan_of(network, options, gpu)
    assert decode(encode(plan.subgraphs)) == plan.subgraphs
    assert check(plan) is plan


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"null", b"3", b"[3]", b"[{}]", b"[[]]", b"\xff\xfe", b"[" * 100_000, b"[NaN", b"[1e999]"]
)
def test_what_is_no_list_of_subgraphs_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", 3),
        ("nodes", [0.0]),
        ("nodes", [-1]),
        ("nodes", [True]),
        ("nodes", "01"),
        ("strategy", "fast"),
        ("strategy", ["padded"]),
        ("strategy", None),
        ("brick", [1, 8, -8, 8]),
        ("band", None),
        ("node_bricks", [1, 2]),
        ("node_bricks", [[1, "8"]]),
        ("delta", float("nan")),
        ("rho", float("inf")),
        ("rho", 10**400),
        ("modelled_us", "fast"),
        ("layerwise_us", False),
        ("tasks", 1.5),
        ("flops", -1),
        ("footprint_bytes", "1"),
        ("why", 3),
        ("kernels", [None]),
        ("algorithms", ["winograd4", 2]),
        ("surplus", 1),
    ],
)
def test_fields_of_other_kinds_are_refused(field, value):
    with pytest.raises(ValueError, match=field if field != "surplus" else "other fields"):
        decode(changed(0, **{field: value}))


def test_fields_that_are_missing_are_refused():
    for field in json.loads(encode(merged().subgraphs))[0]:
        entries = json.loads(encode(merged().subgraphs))
        del entries[0][field]
        with pytest.raises(ValueError, match="other fields"):
            decode(json.dumps(entries).encode())


def refused(subgraphs: tuple[Subgraph, ...], why: str) -> None:
    """Checks that these are not taken for subgraphs of the plan."""
    plan = merged()
    decided = decode(encode(subgraphs))
    with pytest.raises(ValueError, match=why):
        check(make_plan(plan.graph, plan.device, plan.options, decided=decided))


def test_each_node_runs_once():
    subgraphs = merged().subgraphs
    once = "do not hold every node once"
    refused((), once)
    refused(subgraphs[:-1], once)
    refused((*subgraphs, subgraphs[-1]), once)
    refused((*subgraphs[:-1], replace(subgraphs[-1], nodes=(10**6,))), once)
    refused((*subgraphs[:-1], replace(subgraphs[-1], partial_reductions=(10**6,))), once)
    refused(subgraphs[::-1], "before it is written")


def test_what_one_subgraph_cannot_be():
    plan = merged()
    number, s = several(plan)
    size = plan.graph.out(plan.graph.nodes[s.nodes[-1]]).shape

    def with_one(**fields: Any) -> tuple[Subgraph, ...]:
        return (*plan.subgraphs[:number], replace(s, **fields), *plan.subgraphs[number + 1 :])

    refused(with_one(nodes=s.nodes[::-1]), "not in order")
    refused(with_one(node_bricks=s.node_bricks[1:]), "no brick each")
    refused(with_one(strategy="layerwise"), "several nodes, layerwise")
    refused(with_one(kernels=(s.nodes[-1] + 1,)), "kernels of other nodes")
    for brick in (s.brick[1:], (0, *s.brick[1:]), (*size[:-1], size[-1] + 1)):
        refused(with_one(brick=brick), "brick that is empty or larger")
        refused(with_one(node_bricks=(*s.node_bricks[:-1], brick)), "brick that is empty or larger")
    for band in (s.brick[1:], (0, *s.brick[1:]), (*s.brick[:-1], s.brick[-1] + 1)):
        refused(with_one(band=band), "band that is empty or larger")
    refused(with_one(algorithms=("direct",)), "no algorithm each")
    for name in ("strassen3", "winograd9"):
        refused(with_one(algorithms=(name,) + ("direct",) * (len(s.nodes) - 1)), f"is not computed by {name}")
    refused(with_one(bricks=s.bricks + 1), "another number of bricks")


def test_algorithms_come_back():
    """Also those of layers that others would be modelled faster for; none where the options rule them out."""
    plan = plan_of("unet", PlanOptions("layerwise"))
    other = with_subgraphs(plan, plan_subgraphs(plan, algorithms=dict.fromkeys(plan.algorithms, "winograd2")))
    assert other.algorithms and set(other.algorithms.values()) == {"winograd2"}
    decided = decode(encode(other.subgraphs))
    again = check(make_plan(plan.graph, plan.device, plan.options, decided=decided))
    assert (again.subgraphs, again.algorithms) == (other.subgraphs, other.algorithms)
    with pytest.raises(ValueError, match="is not computed by winograd2"):
        check(make_plan(plan.graph, plan.device, PlanOptions("layerwise", exact=True), decided=decided))


def test_numbers():
    assert [is_count(n) for n in (0, 7, True, -1, 1.0, "1", None)] == [True, True, *[False] * 5]
    assert [is_figure(n) for n in (0, -1.5, 10**400, float("inf"), float("nan"), True, "1")] == [
        True,
        True,
        *[False] * 5,
    ]
