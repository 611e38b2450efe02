"""The boxes that non-maximum suppression keeps: each that overlaps none of those kept before too much.

Those that are kept lie in strips by where they begin, and a candidate is compared with those of strips that it may
reach: a detector puts boxes of each class far from those of others, so that most strips are out of reach.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from brickrt.ops.cpu.fixed_function import fixed_function

LANES = 8
UNCOMPILED_PAIRS = 1 << 17
"""Pairs of boxes that NumPy compares, in less time than a process takes to compile the comparison."""
PAIRS_IN_ONE = 1 << 19
"""Pairs that are compared, eight at a time, in less time than boxes are put into strips."""
MOST_STRIPS, BOXES_A_STRIP = 1 << 10, 16
_FLOATS = f"<{LANES} x float>"
_BEFORE = f"""
declare {_FLOATS} @llvm.minimum.v{LANES}f32({_FLOATS}, {_FLOATS})
declare {_FLOATS} @llvm.maximum.v{LANES}f32({_FLOATS}, {_FLOATS})
declare i1 @llvm.vector.reduce.or.v{LANES}i1(<{LANES} x i1>)

define i64 @suppress(ptr noalias %boxes, i64 %n, i64 %limit, float %threshold, ptr noalias %kept, i64 %row,
                     ptr noalias %numbers, ptr noalias %near, ptr noalias %first, ptr noalias %counts) {{
entry:
  %t.one = insertelement {_FLOATS} poison, float %threshold, i32 0
  %t = shufflevector {_FLOATS} %t.one, {_FLOATS} poison, <{LANES} x i32> zeroinitializer
  br label %candidate
candidate:
  %j = phi i64 [0, %entry], [%j.next, %compare], [%j.next, %keep]
  %k = phi i64 [0, %entry], [%k, %compare], [%k.next, %keep]
  %j.next = add i64 %j, 1
  %some = icmp slt i64 %j, %n
  %room = icmp slt i64 %k, %limit
  %more = and i1 %some, %room
  br i1 %more, label %read, label %end
read:
  %low.at = getelementptr [3 x i64], ptr %near, i64 %j, i64 0
  %low = load i64, ptr %low.at
  %high.at = getelementptr [3 x i64], ptr %near, i64 %j, i64 1
  %high = load i64, ptr %high.at
  %own.at = getelementptr [3 x i64], ptr %near, i64 %j, i64 2
  %own = load i64, ptr %own.at
"""
_READ = f"""
  %at{{m}} = getelementptr [5 x float], ptr %boxes, i64 %j, i64 {{m}}
  %c{{m}} = load float, ptr %at{{m}}
  %v{{m}}.one = insertelement {_FLOATS} poison, float %c{{m}}, i32 0
  %v{{m}} = shufflevector {_FLOATS} %v{{m}}.one, {_FLOATS} poison, <{LANES} x i32> zeroinitializer
  %row{{m}} = mul i64 %row, {{m}}
  %kept{{m}} = getelementptr float, ptr %kept, i64 %row{{m}}
"""
_SCAN = f"""
  br label %strip
strip:
  %b = phi i64 [%low, %read], [%b.next, %scan]
  %b.next = add i64 %b, 1
  %inside = icmp sle i64 %b, %high
  br i1 %inside, label %begin, label %keep
begin:
  %begin.at = getelementptr i64, ptr %first, i64 %b
  %begin.i = load i64, ptr %begin.at
  %held.at = getelementptr i64, ptr %counts, i64 %b
  %held = load i64, ptr %held.at
  %end.i = add i64 %begin.i, %held
  %count.one = insertelement <{LANES} x i64> poison, i64 %end.i, i32 0
  %count = shufflevector <{LANES} x i64> %count.one, <{LANES} x i64> poison, <{LANES} x i32> zeroinitializer
  br label %scan
scan:
  %i = phi i64 [%begin.i, %begin], [%i.next, %compare]
  %left = icmp slt i64 %i, %end.i
  br i1 %left, label %compare, label %strip
compare:
  %i.next = add i64 %i, {LANES}
  %i.one = insertelement <{LANES} x i64> poison, i64 %i, i32 0
  %is = shufflevector <{LANES} x i64> %i.one, <{LANES} x i64> poison, <{LANES} x i32> zeroinitializer
  %lanes = add <{LANES} x i64> %is, <{", ".join(f"i64 {lane}" for lane in range(LANES))}>
  %there = icmp slt <{LANES} x i64> %lanes, %count
"""
_KEPT = f"""
  %k{{m}}.at = getelementptr float, ptr %kept{{m}}, i64 %i
  %k{{m}} = load {_FLOATS}, ptr %k{{m}}.at, align 4
"""
_SIDE = f"""
  %low{{m}} = call {_FLOATS} @llvm.maximum.v{LANES}f32({_FLOATS} %v{{m}}, {_FLOATS} %k{{m}})
  %high{{m}} = call {_FLOATS} @llvm.minimum.v{LANES}f32({_FLOATS} %v{{end}}, {_FLOATS} %k{{end}})
  %length{{m}} = fsub {_FLOATS} %high{{m}}, %low{{m}}
  %side{{m}} = call {_FLOATS} @llvm.maximum.v{LANES}f32({_FLOATS} %length{{m}}, {_FLOATS} zeroinitializer)
"""
_DECIDE = f"""
  %common = fmul {_FLOATS} %side0, %side1
  %both = fadd {_FLOATS} %v4, %k4
  %union = fsub {_FLOATS} %both, %common
  %most = fmul {_FLOATS} %t, %union
  %over = fcmp ogt {_FLOATS} %common, %most
  %hits = and <{LANES} x i1> %over, %there
  %hit = call i1 @llvm.vector.reduce.or.v{LANES}i1(<{LANES} x i1> %hits)
  br i1 %hit, label %candidate, label %scan
keep:
  %mine.at = getelementptr i64, ptr %first, i64 %own
  %mine = load i64, ptr %mine.at
  %more.at = getelementptr i64, ptr %counts, i64 %own
  %had = load i64, ptr %more.at
  %has = add i64 %had, 1
  store i64 %has, ptr %more.at
  %slot = add i64 %mine, %had
"""
_STORE = """
  %to{m} = getelementptr float, ptr %kept{m}, i64 %slot
  store float %c{m}, ptr %to{m}
"""
_AFTER = """
  %number.at = getelementptr i64, ptr %numbers, i64 %k
  store i64 %j, ptr %number.at
  %k.next = add i64 %k, 1
  br label %candidate
end:
  ret i64 %k
}
"""


def suppressed(boxes: np.ndarray, limit: int, threshold: float, alike: int = 1) -> np.ndarray:
    """The numbers of at most `limit` of the boxes, float32 [count, 4], lesser corner first, the best box first: those
    that share at most `threshold` of their union with each that is kept before. How they are compared depends on how
    many calls `alike` there are, what is kept does not."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    most = min(limit, len(boxes))
    compiled = _compiled() if alike * len(boxes) * most > UNCOMPILED_PAIRS and boxes.dtype == np.float32 else None
    if compiled is None:
        return suppressed_in_numpy(boxes, areas, limit, threshold)
    candidates = np.empty((len(boxes), 5), np.float32)
    candidates[:, :4], candidates[:, 4] = boxes, areas
    apart = threshold >= 0 and len(boxes) * most > PAIRS_IN_ONE
    near, sizes = strips(boxes) if apart else strips(boxes[:, :0])
    room = np.minimum(sizes, most) + LANES  # a strip's last vector may be read beyond what it holds
    first, counts, row = np.cumsum(room) - room, np.zeros_like(room), int(room.sum())
    kept, numbers = np.zeros((5, row), np.float32), np.empty(most, np.int64)
    arrays = candidates, kept, numbers, near, first, counts
    given, *others = (array.ctypes.data for array in arrays)
    return numbers[: compiled(given, len(boxes), int(limit), threshold, others[0], row, *others[1:])]


def strips(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strips across the first axis, in which boxes lie that begin there: for each box the first and the last strip with
    boxes that may share something with it, and its own [count, 3]; and how many boxes each strip has. One strip holds
    all where some box is not finite, or has no extents."""
    count = len(boxes)
    if not boxes.size or not np.isfinite(boxes).all():
        return np.zeros((count, 3), np.int64), np.array([count])
    low, high = boxes[:, 0].astype(np.float64), boxes[:, 2].astype(np.float64)
    number = max(1, min(MOST_STRIPS, count // BOXES_A_STRIP))
    width = float(low.max() - low.min()) / number or 1.0

    def strip(at: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip((at - low.min()) / width, 0, number - 1).astype(np.int64)

    own, ends, starts = strip(low), np.full(number, -np.inf), np.full(number, np.inf)
    np.maximum.at(ends, own, high)
    np.minimum.at(starts, own, low)
    # no box of a strip begins before `starts`, so that its first strip is enough for all of them
    first = np.searchsorted(np.maximum.accumulate(ends), starts, "right")[own]
    return np.column_stack((np.minimum(first, number - 1), strip(high), own)), np.bincount(own, minlength=number)


def suppressed_in_numpy(boxes: np.ndarray, areas: np.ndarray, limit: int, threshold: float) -> np.ndarray:
    """What the compiled comparison gives, to the bit; `areas` are those of the boxes."""
    kept, left = list[int](), np.arange(len(boxes))
    while len(left) and len(kept) < limit:
        best, left = left[0], left[1:]
        kept.append(int(best))
        sides = np.minimum(boxes[left, 2:], boxes[best, 2:]) - np.maximum(boxes[left, :2], boxes[best, :2])
        common = np.maximum(sides[:, 0], 0) * np.maximum(sides[:, 1], 0)
        left = left[~(common > threshold * (areas[left] + areas[best] - common))]
    return np.array(kept, np.int64)


@cache
def _compiled() -> Callable[..., int] | None:
    """The compiled comparison, which takes a candidate at a time past those that are kept; None where LLVM is not
    installed."""
    rows = range(5)  # two corners and the area
    parts = [_BEFORE, *(_READ.format(m=m) for m in rows), _SCAN, *(_KEPT.format(m=m) for m in rows)]
    parts += [*(_SIDE.format(m=m, end=m + 2) for m in (0, 1)), _DECIDE, *(_STORE.format(m=m) for m in rows), _AFTER]
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    types = pointer, number, number, ctypes.c_float, *(pointer, number, pointer, pointer, pointer, pointer)
    return fixed_function("".join(parts), "suppress", *types, ret=number)
