"""The boxes that non-maximum suppression keeps: each that overlaps none of those kept before too much."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from brickrt.ops.cpu.fixed_function import fixed_function

LANES = 8
FEW = 1 << 17
"""Pairs of boxes that NumPy compares, in less time than a process takes to compile the comparison."""
_FLOATS = f"<{LANES} x float>"
_BEFORE = f"""
declare {_FLOATS} @llvm.minimum.v{LANES}f32({_FLOATS}, {_FLOATS})
declare {_FLOATS} @llvm.maximum.v{LANES}f32({_FLOATS}, {_FLOATS})
declare i1 @llvm.vector.reduce.or.v{LANES}i1(<{LANES} x i1>)

define i64 @suppress(ptr noalias %boxes, i64 %n, i64 %limit, float %threshold, ptr noalias %kept, i64 %row,
                     ptr noalias %numbers) {{
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
  %count.one = insertelement <{LANES} x i64> poison, i64 %k, i32 0
  %count = shufflevector <{LANES} x i64> %count.one, <{LANES} x i64> poison, <{LANES} x i32> zeroinitializer
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
  br label %scan
scan:
  %i = phi i64 [0, %read], [%i.next, %compare]
  %left = icmp slt i64 %i, %k
  br i1 %left, label %compare, label %keep
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
"""
_STORE = """
  %to{m} = getelementptr float, ptr %kept{m}, i64 %k
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


def suppressed(boxes: np.ndarray, limit: int, threshold: float) -> np.ndarray:
    """The numbers of at most `limit` of the boxes, float32 [count, 4], lesser corner first, the best box first: those
    that share at most `threshold` of their union with each that is kept before."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    compiled = _compiled() if len(boxes) * min(limit, len(boxes)) > FEW and boxes.dtype == np.float32 else None
    if compiled is None:
        return suppressed_in_numpy(boxes, areas, limit, threshold)
    candidates = np.column_stack((boxes, areas))
    row = -(-min(limit, len(boxes)) // LANES) * LANES
    kept, numbers = np.zeros((5, row), np.float32), np.empty(row, np.int64)
    at = candidates.ctypes.data, len(boxes), int(limit), threshold, kept.ctypes.data, row, numbers.ctypes.data
    return numbers[: compiled(*at)]


def suppressed_in_numpy(boxes: np.ndarray, areas: np.ndarray, limit: int, threshold: float) -> np.ndarray:
    """What the compiled comparison gives, to the bit; `areas` are those of the boxes."""
    kept, left = list[int](), np.arange(len(boxes))
    while len(left) and len(kept) < limit:
        best, left = left[0], left[1:]
        kept.append(int(best))
        sides = np.minimum(boxes[left, 2:], boxes[best, 2:]) - np.maximum(boxes[left, :2], boxes[best, :2])
        common = np.prod(np.maximum(sides, 0), axis=1)
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
    types = pointer, number, number, ctypes.c_float, pointer, number, pointer
    return fixed_function("".join(parts), "suppress", *types, ret=number)
