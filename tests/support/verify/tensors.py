"""Checks of what steps read and write of tensors that are stored whole: all is written once, and before it is read.

Tensors that share memory are used one after the other. What steps see of views with other strides counts as all of the
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Boxes
from tests.support.verify.access import TensorAccess, TensorHistory, in_scratch
from tests.support.verify.grid import Grid, owners
from tests.support.verify.order import Order
from tests.support.verify.types import Expected, distinct, fail, first


def check_tensors(tensors: dict[str, TensorHistory], order: Order, expected: Expected) -> None:
    """Checks all tensors that are not in scratch."""
    stored = [tensor for tensor in tensors.values() if not in_scratch(tensor)]
    for name in expected.outputs:
        if name not in tensors or not tensors[name].writers.size:
            fail(f"output '{name}' is never written")
    made = []
    for tensor in stored:
        if tensor.writers.size:
            _check_written(tensor)
            made.append(tensor)
        elif tensor.name not in expected.io:
            _check_unread(tensor)
    _check_shared([tensor for tensor in made if tensor.name not in expected.io])


def _check_unread(tensor: TensorHistory) -> None:
    for access in tensor.reads:
        if (i := first(access.boxes().volumes > 0)) is not None:
            fail(f"{access.steps.where(i)} reads '{tensor.name}', which is never written")
    if tensor.uses:
        fail(f"node '{tensor.uses[0].node}' reads '{tensor.name}', which is never written")


# ---- one tensor


def _check_written(tensor: TensorHistory) -> None:
    """All its elements are written once, by steps or a call, and then updated; who reads them comes after that."""
    calls = [use.launch for use in tensor.uses if use.writes]
    if len(calls) + bool(tensor.writes) != 1:
        fail(f"'{tensor.name}' is written by {len(calls)} calls and by the steps of {len(tensor.writes)} nodes")
    for call in calls:
        later = np.setdiff1d(tensor.users, calls)
        if (i := first(~tensor.order.launched(np.full(len(later), call), later))) is not None:
            fail(f"launch {later[i]} does not come after launch {call}, which writes '{tensor.name}'")
    for phase in ([tensor.writes] if tensor.writes else []) + ([tensor.updates] if tensor.updates else []):
        _check_phase(tensor, phase)


def _check_phase(tensor: TensorHistory, writes: list[TensorAccess]) -> None:
    """`writes` cover the tensor, and come before what reads it."""
    made = Made.by(tensor, writes)
    for access in tensor.reads:
        made.check_read(access)
    others = np.unique(np.array([use.launch for use in tensor.uses if not use.writes], np.int64))
    if not tensor.order.all_launched(made.launches, others):
        fail(f"a call that reads '{tensor.name}' does not come after all that writes it")


@dataclass(frozen=True, eq=False)
class Made:
    """Boxes of a tensor that steps write: `tasks`, places `at` in the order of steps, and which has each cell."""

    tensor: TensorHistory
    operand: Operand
    tasks: np.ndarray
    at: np.ndarray
    grid: Grid
    owner: np.ndarray
    launches: np.ndarray

    @staticmethod
    def by(tensor: TensorHistory, writes: Sequence[TensorAccess]) -> Made:
        """Raises where some elements are not written, or twice."""
        parts = [access.boxes() for access in writes]
        boxes = Boxes(np.concatenate([b.lo for b in parts]), np.concatenate([b.hi for b in parts]))
        operand, grid = writes[0].operand, Grid.of(boxes, writes[0].operand.shape)
        times, owner = owners(grid, boxes)
        node = writes[0].steps.like.node
        if not grid.spans(operand.shape):
            fail(f"node '{node}': its steps do not reach the ends of '{tensor.name}' {list(operand.shape)}")
        if (i := first(times != 1)) is not None:
            at = [int(cuts[k]) for cuts, k in zip(grid.cuts, np.unravel_index(i, grid.shape), strict=True)]
            fail(f"node '{node}': element {at} of '{tensor.name}' is written {times[i]} times")
        tasks, places = (np.concatenate([getattr(a.steps, name) for a in writes]) for name in ("tasks", "at"))
        return Made(tensor, operand, tasks, places, grid, owner, tensor.order.distinct(tensor.order.launch_of[tasks]))

    def check_read(self, access: TensorAccess) -> None:
        """Steps that read the tensor come after those that write what they read."""
        order, tasks = self.tensor.order, access.steps.tasks
        readers = order.distinct(order.launch_of[tasks])
        if not np.isin(readers, self.launches).any() and order.all_launched(self.launches, readers):
            return
        if access.operand.strides == self.operand.strides and access.operand.dtype == self.operand.dtype:
            self._check_boxes(access)
        else:
            self._check_all(access)

    def _check_boxes(self, access: TensorAccess) -> None:
        boxes = access.boxes()
        some = np.flatnonzero((boxes.hi > boxes.lo).all(axis=1))
        of, cells = self.grid.covering(boxes.take(some))
        of, owner = some[of], self.owner[cells]
        self._check_pairs(access, of, owner)

    def _check_pairs(self, access: TensorAccess, of: np.ndarray, owner: np.ndarray) -> None:
        steps = access.steps
        before, after = self.tasks[owner], steps.tasks[of]
        if (i := first((before == after) & (self.at[owner] > steps.at[of]))) is not None:
            fail(f"{steps.where(of[i])} reads '{self.tensor.name}' before it is written")
        if (i := self.tensor.order.first_unordered(before, after)) is not None:
            what = f"{steps.where(of[i])} reads '{self.tensor.name}'"
            fail(f"{what}, for whose writer, task {before[i]}, it does not wait")

    def _check_all(self, access: TensorAccess) -> None:
        """The same, as if each step read all of the tensor."""
        order, tasks = self.tensor.order, access.steps.tasks
        readers, name = order.distinct(order.launch_of[tasks]), self.tensor.name
        if not order.all_launched(self.launches, readers):
            fail(f"{access.steps.where(0)} reads '{name}', for whose writers its launch does not wait")
        for launch in np.intersect1d(self.launches, readers).tolist():
            own, others = (distinct(t[order.launch_of[t] == launch]) for t in (tasks, self.tasks))
            if (pair := order.first_of_all(others, own)) is not None:
                fail(f"task {pair[1]} reads '{name}', for whose writer, task {pair[0]}, it does not wait")


# ---- tensors that share memory


def _check_shared(tensors: Sequence[TensorHistory]) -> None:
    """Where two tensors have the same memory, all that uses the one comes before all that writes the other."""
    here: list[TensorHistory] = []  # those that reach beyond where the next one begins
    for b in sorted(tensors, key=lambda one: one.bytes):
        here = [a for a in here if a.bytes[1] > b.bytes[0]]
        for a in here:
            _check_apart(*sorted((a, b), key=lambda one: one.begins))
        here.append(b)


def _check_apart(old: TensorHistory, new: TensorHistory) -> None:
    order, both = old.order, f"'{old.name}' and '{new.name}', which lie in the same memory"
    a, b = old.users[:, None], new.writers
    same = a == b
    wrong = ~(order.launched(a, b) | same)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        fail(f"launch {b[j]} does not come after launch {a[i, 0]}: they use {both}")
    for launch in old.users[same.any(axis=1)].tolist():
        mine, its = old.tasks(old.all, launch), new.tasks([*new.writes, *new.updates], launch)
        if not order.tables.launches[launch].tickets:
            fail(f"launch {launch} uses {both}")
        if (pair := order.first_of_all(mine, its)) is not None:
            fail(f"task {pair[1]} does not wait for task {pair[0]}: they use {both}")
