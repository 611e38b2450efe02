"""Graphs whose reductions are of parts first, beside what they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.plan.assign_layouts import assign_layouts
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.layout import Layout, image_layout
from tests.support.graphs.by_definition import interpret

Split = Callable[[Graph, Mapping[str, Layout], DeviceSpec], tuple[Graph, dict[str, Layout]]]


def checked_split(split: Split, graph: Graph, device: DeviceSpec, rtol: float, atol: float) -> Graph:
    """The split graph, which computes the same."""
    placed, layouts = assign_layouts(graph, image_layout(device))
    found, places = split(placed, layouts, device)
    assert places.keys() >= found.verify().types.keys()
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(graph.types[n].shape).astype(graph.types[n].dtype) for n in graph.inputs}
    wanted, got = interpret(placed, values), interpret(found, values)
    for name, want in wanted.items():
        np.testing.assert_allclose(got[name], want, rtol=rtol, atol=atol)
    return found
