"""The calls of cuDNN that plans of the zoo make on a device, asked for one by one as the engine does."""

from __future__ import annotations

from dataclasses import dataclass

from bench.gpu.support.kernel_figures import GROUP_TASKS, ModelPrograms
from brickrt.ops.cuda.cudnn.coverage import Product
from brickrt.plan.device.device_spec import device_named
from brickrt.plan.options import PlanOptions, Precision, Strategy
from brickrt.plan.plan import make_plan
from brickrt.runtime.cuda.driver.protocol import ProductLibrary
from brickrt.runtime.cuda.groups.group_search import find_groups
from brickrt.runtime.cuda.schedule.launches import make_launches
from brickrt.runtime.lowering.lower import lower

PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")
STRATEGIES: tuple[Strategy, ...] = ("layerwise", "padded", "memoized", "auto")


@dataclass(frozen=True)
class ProductCounts:
    """How many products a plan has, how many of them the library computes, at least in part, and by name of the node
    why kernels compute the others."""

    products: int
    called: int
    reasons: dict[str, str]


def ask_for(
    network: ModelPrograms, library: ProductLibrary, device: str, precision: Precision, strategy: Strategy
) -> ProductCounts:
    """Asks a library for all products of a plan."""
    options = PlanOptions(strategy, precision=precision)
    tasks = lower(make_plan(network.in_precision(precision), device_named(device), options))
    groups = find_groups(tasks, make_launches(tasks, True, GROUP_TASKS), library, None)
    nodes = tasks.plan.graph.nodes
    called = {nodes[tasks.steps[layer.steps].node].name for layer, _ in groups.calls.values()}
    why = groups.reasons | groups.layers.reasons
    products = sum(isinstance(node.op, Product) for node in nodes)
    return ProductCounts(products, len(called), {name: said for name, said in why.items() if name not in called})
