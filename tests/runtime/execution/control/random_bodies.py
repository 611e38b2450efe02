"""Loops, scans and branches nobody wrote: bodies of random steps, with others inside."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.support.graphs.onnx_models import graph, model, node, tensor

ROWS, COLUMNS = 3, 4
MOST_DEPTH = 2
INPUTS = {"x": [ROWS, COLUMNS], "t": ["T", COLUMNS]}
"""Tensors of the outer scope, beside `n`, how many rounds there are, and `yes`, a flag."""


@dataclass
class _Scope:
    """A graph that is being made. `images` are tensors [ROWS, COLUMNS] that may be read, of outer scopes too, `counter`
    is an int64, `tables` are [?, COLUMNS]."""

    names: random.Random
    prefix: str
    images: list[str]
    tables: list[str]
    counter: str
    depth: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def fresh(self) -> str:
        return f"{self.prefix}{len(self.nodes)}"

    def add(self, kind: str, inputs: str, **attributes: object) -> str:
        name = self.fresh()
        self.nodes.append(node(kind, inputs, name, name=f"{kind}_{name}", **attributes))
        return name

    def image(self) -> str:
        return self.names.choice(self.images)

    def inside(self, images: list[str], counter: str = "") -> _Scope:
        prefix = f"{self.prefix}{len(self.nodes)}_{self.names.randrange(100)}_"
        return _Scope(self.names, prefix, [*self.images, *images], self.tables, counter or self.counter, self.depth + 1)


def random_control(decisions: random.Random) -> onnx.ModelProto:
    """Inputs of INPUTS, `n` int64 and `yes` bool; a Loop, Scan or If among other steps, all tensors of which are
    outputs that it computes."""
    scope = _Scope(decisions, "a", ["x"], ["t"], "n")
    outer = scope.add("Tanh", "x")
    scope.images.append(outer)
    made = [_loop, _scan, _branch][decisions.choice([0, 0, 0, 1, 2])](scope)
    last = scope.add("Add", f"{made[0]} {outer}")
    outputs = " ".join(dict.fromkeys((last, *made)))
    inputs = [tensor(name, dims) for name, dims in INPUTS.items()]
    rng = np.random.default_rng(decisions.randrange(1 << 16))
    weights = {
        "w": rng.standard_normal((COLUMNS, COLUMNS)).astype(np.float32) / 2,
        "row": rng.standard_normal(COLUMNS).astype(np.float32),
        "zero": np.float32(0),
        "two": np.array(2),
        "rows": np.array(ROWS),
        "first": np.array([0]),
        "go": np.array(True),
        "limit": np.float32(decisions.choice([0.5, 2, 9])),
    }
    more = [tensor("n", [], np.int64), tensor("yes", [], bool)]
    return model(scope.nodes, [*inputs, *more], outputs, **weights)


def _steps(scope: _Scope) -> str:
    """A few steps, and the image that they end with, between -1 and 1."""
    last = scope.image()
    for _ in range(scope.names.randint(1, 3)):
        kinds = [_unary, _binary, _product, _gathered, _table]
        if scope.depth < MOST_DEPTH:
            kinds += [_inner(_branch), _inner(_loop), _inner(_scan)]
        last = scope.names.choice(kinds)(scope, last)
        scope.images.append(last)
    return scope.add("Tanh", last)


def _unary(scope: _Scope, x: str) -> str:
    return scope.add(scope.names.choice(["Relu", "Neg", "Sigmoid", "Identity", "Abs"]), x)


def _binary(scope: _Scope, x: str) -> str:
    return scope.add(
        scope.names.choice(["Add", "Sub", "Mul", "Max"]), f"{x} {scope.names.choice([scope.image(), 'row'])}"
    )


def _product(scope: _Scope, x: str) -> str:
    return scope.add("MatMul", f"{x} w")


def _gathered(scope: _Scope, x: str) -> str:
    """Another row of the image in each round."""
    at = scope.add("Mod", f"{scope.counter} rows")
    return scope.add("Add", f"{x} {scope.add('Gather', f'{scope.image()} {at}', axis=0)}")


def _table(scope: _Scope, x: str) -> str:
    """The mean of a tensor whose length may change."""
    mean = scope.add("ReduceMean", scope.names.choice(scope.tables), axes=[0], keepdims=1)
    return scope.add("Add", f"{x} {mean}")


def _inner(make):
    def step(scope: _Scope, x: str) -> str:
        return scope.add("Add", f"{x} {make(scope)[0]}")

    return step


def _flag(scope: _Scope) -> str:
    """A condition: given, of the number of the round, or of values."""
    kind = scope.names.randrange(3)
    if kind == 0:
        return "yes"
    if kind == 1:
        return scope.add(
            "Equal", f"{scope.add('Mod', f'{scope.counter} two')} {scope.names.choice(['rows', 'two', 'n'])}"
        )
    return scope.add("Greater", f"{scope.add('ReduceSum', scope.image(), keepdims=0)} zero")


def _branch(scope: _Scope) -> list[str]:
    condition, graphs = _flag(scope), []
    for _ in range(2):
        inside = scope.inside([])
        last = _steps(inside)
        graphs.append(graph(inside.nodes, outputs=last))
    return [scope.add("If", condition, then_branch=graphs[0], else_branch=graphs[1])]


def _loop(scope: _Scope) -> list[str]:
    """A state that changes, one that stays, one that grows in some, and what is stacked."""
    i, going = f"{scope.prefix}i{len(scope.nodes)}", f"{scope.prefix}c{len(scope.nodes)}"
    v, stay, grown = (f"{scope.prefix}{name}{len(scope.nodes)}" for name in ("v", "s", "g"))
    inside = scope.inside([v, stay], i)
    grows = scope.names.random() < 0.5
    if grows:
        inside.tables = [*scope.tables, grown]
    last = _steps(inside)
    proceed = _proceeds(inside, going, last)
    states = [(v, last), (stay, inside.add("Identity", stay))]
    if grows:
        states.append((grown, inside.add("Concat", f"{grown} {last}", axis=0)))
    stacked = [last] if scope.names.random() < 0.5 else []
    ends = [tensor(i, [], np.int64), tensor(going, [], bool)]
    ends += [tensor(name, [None if name == grown else ROWS, COLUMNS]) for name, _ in states]
    names = [proceed, *(out for _, out in states), *stacked]
    body = graph(inside.nodes, ends, [tensor(proceed, [], bool), *(tensor(o, [None, COLUMNS]) for o in names[1:])])
    trips = "n" if scope.depth == 0 else scope.names.choice(["two", "n", scope.counter])
    outputs = [f"{scope.fresh()}_{k}" for k in range(len(names) - 1)]
    first = " ".join([scope.image(), scope.image(), *(["t"] if grows else [])])
    made = node("Loop", f"{trips} {scope.names.choice(['_', 'go'])} {first}", " ".join(outputs), body=body)
    made.name = f"Loop_{outputs[0]}"
    scope.nodes.append(made)
    return outputs


def _proceeds(inside: _Scope, going: str, last: str) -> str:
    """Whether another round follows: always, or while the values are small."""
    if inside.names.random() < 0.5:
        return inside.add("Identity", going)
    return inside.add("Less", f"{inside.add('ReduceMax', last, keepdims=0)} limit")


def _scan(scope: _Scope) -> list[str]:
    """Over the rows of one image, or the columns backwards, added to a row."""
    state, part = f"{scope.prefix}u{len(scope.nodes)}", f"{scope.prefix}p{len(scope.nodes)}"
    inside = scope.inside([])
    mixed = inside.add("Add", f"{part} {state}")
    image = inside.add("Add", f"{scope.image()} {mixed}")
    inside.images.append(image)
    last = _steps(inside)
    after = inside.add("Tanh", inside.add("Add", f"{inside.add('ReduceMean', last, axes=[0], keepdims=0)} {state}"))
    row = inside.add("Identity", mixed)
    ends = [tensor(state, [COLUMNS]), tensor(part, [COLUMNS])]
    body = graph(inside.nodes, ends, [tensor(after, [COLUMNS]), tensor(row, [COLUMNS])])
    back = [scope.names.randrange(2)]
    made = scope.fresh()
    first = scope.add("ReduceMax", scope.image(), axes=[0], keepdims=0)
    outputs = [f"{made}_state", f"{made}_rows"]
    scan = node(
        "Scan", f"{first} {scope.image()}", " ".join(outputs), body=body, num_scan_inputs=1, name=f"Scan_{made}"
    )
    scan.attribute.extend([onnx.helper.make_attribute("scan_input_directions", back)])
    scan.attribute.extend([onnx.helper.make_attribute("scan_output_directions", [scope.names.randrange(2)])])
    scope.nodes.append(scan)
    return outputs[::-1]
