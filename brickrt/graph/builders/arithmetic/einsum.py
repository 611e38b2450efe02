"""Einsum as sums, transpositions and batched matrix products of two operands at a time."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, reduce, transpose, view, wide
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.matmul import MatMul


@dataclass(frozen=True)
class Term:
    """A tensor and the label of each of its axes."""

    tensor: str
    labels: str


@builds("Einsum")
def einsum(b: Builder, node: OnnxNode) -> str:
    """Products of two operands at a time, from the left; labels that nothing more needs are summed early."""
    names = [wide(b, name) for name in node.inputs]
    labels, result = parse(node.attrs["equation"], [b.type(name).rank for name in names])
    terms = [Term(name, term) for name, term in zip(names, labels, strict=True)]
    sizes = _sizes(b, terms)
    current = terms[0]
    for k, term in enumerate(terms[1:], 2):
        current = _contract(b, current, term, set(result).union(*labels[k:]), sizes)
    current = _summed(b, current, set(result))
    final = transpose(b, current.tensor, [current.labels.index(label) for label in result])
    return convert(b, final, b.type(node.inputs[0]).dtype)


def parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of the operands and of the result; the dimensions of an ellipsis get digits, from the right."""
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum '{equation}' names {len(terms)} operands, not {len(ranks)}")
    covered = max((r - len(t) + 3 for t, r in zip(terms, ranks) if "..." in t), default=0)
    digits = "0123456789"[:covered]
    expanded = [t.replace("...", digits[covered - (r - len(t) + 3) :]) for t, r in zip(terms, ranks)]
    if "->" in equation.replace(" ", ""):
        result = right.replace("...", digits)
    else:
        counts = Counter(re.sub(r"[\d.,]", "", left))
        result = digits + "".join(sorted(label for label, n in counts.items() if n == 1))
    if any(len(set(t)) < len(t) for t in expanded):
        raise Unsupported("einsum over a diagonal")
    return expanded, result


def _sizes(b: Builder, terms: list[Term]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, b.type(term.tensor).shape, strict=True):
            if sizes.setdefault(label, extent) != extent:
                raise Unsupported("einsum that broadcasts a dimension")
    return sizes


def _summed(b: Builder, term: Term, wanted: set[str]) -> Term:
    """The term without the labels that nobody wants."""
    axes = [k for k, label in enumerate(term.labels) if label not in wanted]
    labels = "".join(label for label in term.labels if label in wanted)
    return Term(reduce(b, "sum", axes, term.tensor, keepdims=False), labels)


def _contract(b: Builder, left: Term, right: Term, wanted: set[str], sizes: dict[str, int]) -> Term:
    """One batched product: shared labels that are wanted are batch, shared ones that are not are summed."""
    left, right = _summed(b, left, wanted | set(right.labels)), _summed(b, right, wanted | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in wanted]
    inner = [label for label in shared if label not in wanted]
    rows, columns = ([x for x in term.labels if x not in shared] for term in (left, right))

    def matrix(term: Term, order: list[str], first: list[str], second: list[str]) -> str:
        moved = transpose(b, term.tensor, [term.labels.index(label) for label in order])
        extents = [math.prod(sizes[label] for label in part) for part in (first, second)]
        return view(b, moved, [*(sizes[label] for label in batch), *extents])

    a = matrix(left, [*batch, *rows, *inner], rows, inner)
    c = matrix(right, [*batch, *inner, *columns], inner, columns)
    labels = [*batch, *rows, *columns]
    return Term(view(b, b.emit(MatMul(), a, c), [sizes[label] for label in labels]), "".join(labels))
