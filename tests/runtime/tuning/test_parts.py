"""Parts that several plans have in common, and plans put together of parts."""

from __future__ import annotations

from types import SimpleNamespace

from brickrt.runtime.tuning.parts import common_parts, merged_where_faster


def pieces(*nodes):
    """Subgraphs with these nodes, (nodes, partial reductions) where they are pairs of tuples."""
    both = (n if n and isinstance(n[0], tuple) else (n, ()) for n in nodes)
    return [SimpleNamespace(nodes=own, members=own + partial) for own, partial in both]


def parts(layers, subgraphs):
    return {tuple(sorted(part)): numbers for part, numbers in common_parts(layers, subgraphs)}


LAYERS = [frozenset({0}), frozenset({1}), frozenset({2}), frozenset({3})]


def test_layers_and_merges():
    assert parts(LAYERS, pieces((0,), (1, 2), (3,))) == {(0,): (0,), (1, 2): (1,), (3,): (2,)}
    assert parts(LAYERS, pieces((0, 1, 2, 3))) == {(0, 1, 2, 3): (0,)}


def test_layers_of_several_nodes():
    """Node 2 is a partial reduction of node 1; in one plan it runs by itself, in the other with what reads node 1."""
    layers = [frozenset({0}), frozenset({1, 2}), frozenset({3})]
    assert parts(layers, pieces((0,), (1,), (2,), (3,))) == {(0,): (0,), (1, 2): (1, 2), (3,): (3,)}
    assert parts(layers, pieces(((0, 1), (2,)), (3,))) == {(0, 1, 2): (0,), (3,): (1,)}
    assert parts(layers, pieces((0, 1), (2, 3))) == {(0, 1, 2, 3): (0, 1)}


def test_what_saves_most_is_merged_first():
    layers = pieces((0,), (1,), (2,), (3,))
    merged = {frozenset(nodes): pieces(nodes) for nodes in ((0, 1), (1, 2), (2, 3))}

    def chosen(*saved):
        return [s.nodes for s in merged_where_faster(layers, merged, dict(zip(merged, saved, strict=True)))]

    assert chosen(1.0, 3.0, 1.0) == [(0,), (1, 2), (3,)]
    assert chosen(2.0, 1.5, 1.0) == [(0, 1), (2, 3)]
    assert chosen(-1.0, -1.0, 0.0) == [(0,), (1,), (2, 3)]
