"""Frames of the dashboard: they fit any screen, and say what they should."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt import Runtime
from brickrt.dashboard.live.frame_state import FrameState, TrafficComparison
from brickrt.dashboard.live.frames import VIEWS, frame
from brickrt.dashboard.live.lines import beside, coded, cut, fit, line, plain, width_of
from brickrt.dashboard.live.panels import map_cells, table
from brickrt.dashboard.live.run_state import COMPLETE, RUNNING, WAITING, RunState
from brickrt.dashboard.live.watched_runs import Session, compared
from brickrt.dashboard.recording import GraphRun
from brickrt.runtime import events
from tests.support.graphs.chains import chain

SIZES = [(80, 24), (200, 50), (40, 10), (300, 100), (20, 5)]


def rows_of(run: GraphRun, workers: int = 2) -> list[np.ndarray]:
    """The workers' buffers after a run."""
    e, filled = run.events, events.buffers(len(run.tasks), workers)
    for worker, rows in enumerate(filled):
        mine = np.arange(len(e)) % workers == worker
        rows[: mine.sum()] = np.stack([e.task, e.start, e.end, e.waits, e.revisits], 1)[mine]
    return filled


def half(run: GraphRun) -> RunState:
    """Someone watching a run of which half the rows are there, and one task is under way."""
    watching, filled = RunState(), rows_of(run)
    for rows in filled:
        n = events.used(rows)
        rows[max(1, n // 2) :] = 0
    filled[0][events.used(filled[0]) - 1, 2] = 0
    watching.began(run.tasks, filled)
    return watching


def scene(watching: RunState) -> FrameState:
    locality = TrafficComparison(2e4, 3e4, {"l2": 1 << 20, "l3": 1 << 19}, {"l2": 1 << 21, "l3": 1 << 20})
    return Session("model", 3, watching, locality, held_bytes=1 << 20, projected_bytes=2 << 20).scene()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_every_frame_has_its_height_and_no_line_is_wider(run, view, size):
    watching = half(run)
    for paused in (False, True):
        lines = frame(scene(watching), *size, view, paused, "saved 名前.txt")
        assert len(lines) == size[1]
        assert max(map(width_of, lines)) <= size[0]


def test_the_overview_says_it_all(run):
    watching = half(run)
    text = "\n".join(plain(one) for one in frame(scene(watching), 80, 24))
    for words in ("model", "run 1/3", "all runs", "this run", "tasks/s", "worker 0", "worker 1", "to do", "running"):
        assert words in text
    for words in ("done", "first time", "waits", "revisits", "recomputed", "live", "arena", "peak", "projected"):
        assert words in text
    for words in (
        "layers",
        "strategy",
        "brick",
        "share",
        "GF/s",
        "GB/s",
        "first",
        "q quit",
        "p pause",
        "reuse dist.",
        "beyond l2",
    ):
        assert words in text


def test_states_and_counts_follow_the_rows(run):
    moment = half(run).moment()
    own = run.tasks.task_subgraph >= 0
    assert sum(moment.counts) == own.sum()
    assert moment.counts[1] <= 2 and (moment.states == RUNNING).sum() == 1
    assert moment.lanes[0].running and not moment.lanes[1].running
    watching = RunState()
    watching.began(run.tasks, rows_of(run))
    whole = watching.moment()
    assert whole.counts == (0, 0, own.sum()) and whole.live_bytes == 0
    assert (map_cells(whole, 10, 10) == COMPLETE).all()
    watching.began(run.tasks, events.buffers(len(run.tasks), 2))
    assert watching.moment().counts == (own.sum(), 0, 0)
    assert (map_cells(watching.moment(), 10, 10) == WAITING).all()


def test_looking_often_sees_the_same_as_looking_once(run):
    filled, often = rows_of(run), events.buffers(len(run.tasks), 2)
    watching = RunState()
    watching.began(run.tasks, often)
    for k in range(max(map(len, filled))):
        for some, rows in zip(often, filled):
            some[k : k + 1, :2] = rows[k : k + 1, :2]
            watching.moment()
            some[k : k + 1] = rows[k : k + 1]
    watching.moment()
    once = RunState()
    once.began(run.tasks, filled)
    np.testing.assert_array_equal(watching.moment().states, once.moment().states)
    assert watching.moment().counts == once.moment().counts


def test_the_map_joins_bricks_where_cells_are_few(run):
    moment = half(run).moment()
    small, large = map_cells(moment, 2, 2), map_cells(moment, 100, 100)
    assert small.shape <= (2, 2) and large.size >= small.size
    assert set(np.unique(small)) <= {WAITING, RUNNING, COMPLETE}
    if (large == WAITING).any() and (large == COMPLETE).any():
        assert (map_cells(moment, 1, 1) == RUNNING).all()


def test_times_are_means_of_the_runs_that_ended(run):
    watching = RunState()
    for _ in range(2):
        watching.began(run.tasks, rows_of(run))
        watching.ended(run.tasks, run.events)
    moment = watching.moment()
    rows = watching.rows(moment.labels)
    assert sum(row.share for row in rows) == pytest.approx(1)
    took = (run.events.end - run.events.start)[run.tasks.task_subgraph[run.events.task] >= 0].sum() / 1e6
    assert sum(row.ms for row in rows) == pytest.approx(took)
    assert all(row.gbps > 0 for row in rows if row.ms)
    assert len(table(rows, 80, 2, by_time=True)) == 2


def test_runs_that_nobody_looks_at_are_not_read(run):
    watching = RunState()
    for _ in range(5):
        watching.began(run.tasks, rows_of(run))
        watching.ended(run.tasks, run.events)
    assert watching.last is None
    first, second = watching.moment(), watching.moment()
    assert first is second and first.counts[2] == (run.tasks.task_subgraph >= 0).sum()
    assert first.seconds > 0 and sum(row.ms for row in watching.rows(first.labels)) > 0


def test_stages_compiled_later_count_in_memory_and_traffic():
    """x → Relu → NonZero (on the host) → Cast → Relu"""
    x = np.ones((1, 3, 8, 8), np.float32)
    names = "xabcy"
    ops = [("Relu", {}), ("NonZero", {}), ("Cast", {"to": onnx.TensorProto.FLOAT}), ("Relu", {})]
    nodes = [onnx.helper.make_node(op, [a], [b], **more) for (op, more), a, b in zip(ops, names, names[1:])]
    ends = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", x.shape), ("y", None))]
    graph = onnx.helper.make_graph(nodes, "late", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    runtime, session = Runtime(model, threads=1), Session("late", 1)
    session.planned(runtime.prepare({"x": x}))
    before = session.held_bytes, session.projected_bytes
    runtime.execute({"x": x})
    session.compiled(runtime.plan)
    assert len(runtime.plan.programs) == 2
    assert session.held_bytes > before[0] > 0 and session.projected_bytes > before[1] > 0


def test_host_nodes_show_while_they_run():
    watching = RunState()
    watching.hosted("slow node", 5, 0)
    assert "slow node" in plain(frame(scene(watching), 80, 24)[3])
    watching.hosted("slow node", 5, 9)
    assert "slow node" not in "".join(map(plain, frame(scene(watching), 80, 24)))


def test_the_plan_beside_the_same_layer_by_layer(run):
    runtime = Runtime(chain(), strategy=run.tasks.plan.options.strategy, brick=16, threads=1)
    found = compared(runtime.prepare({"x": np.ones((1, 3, 96, 96), np.float32)}))
    assert set(found.level_bytes) == set(found.layerwise_bytes)
    if run.tasks.plan.options.strategy == "layerwise":
        assert found.level_bytes == found.layerwise_bytes
        assert found.reuse_bytes == found.layerwise_reuse_bytes


# ---- lines


@pytest.mark.parametrize(
    "text", ["plain", "名前名前名前", "tab\tand\x1b[2Jcode", "e\u0301" * 9, "\u202eright", "🧱🧱🧱"]
)
@pytest.mark.parametrize("width", [0, 1, 2, 3, 5, 8, 40])
def test_lines_are_cut_to_cells(text, width):
    for spans in (fit(line(text), width), fit(line("a", (text, "green"), text), width)):
        assert width_of(spans) <= width
        assert plain(spans).isprintable()
    assert width == 0 or width_of([(cut(text, width), "")]) == width


def test_columns_stand_beside_each_other():
    both = beside([line("名前"), line("b")], [line("right")], 6)
    assert [plain(spans) for spans in both] == ["名前    right", "b       "]


def test_colours_are_left_out_where_they_are_not_wanted():
    spans = line(("now", "green"), ("here", "reverse"))
    assert coded(spans, colour=True) == "\x1b[32mnow\x1b[0m\x1b[7mhere\x1b[0m"
    assert coded(spans, colour=False) == "now\x1b[7mhere\x1b[0m"
