"""Runs CUDA kernels on the host on operands that hold no more than a box needs, as a padded brick's scratch does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cuda.kernel import make_kernel
from brickrt.ops.cuda.operand import VECTOR, Operand, dense
from brickrt.ops.types import Boxes, TensorType
from tests.support.cuda.host_kernels import compiled, source_of, stored


def run_in_scratch(
    op: Op, arrays: Sequence[np.ndarray], layouts: Sequence[str], box: Boxes, off: int = 0, threads: int = 64
) -> np.ndarray:
    """`op` on one box; all operands begin `off` elements behind an address that is a multiple of 64."""
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    out = op.infer(types)
    regions = [op.region(i, box, types, out) for i in range(len(arrays))]
    held = [stored(a[r.slices()], at) for a, r, at in zip(arrays, regions, layouts)]
    held.append(stored(np.zeros(box.extents[0], out.dtype), layouts[-1]))
    places = [_Place(a, off) for a in held]
    lie = [p.operand(t, at, r) for p, t, at, r in zip(places, [*types, out], layouts, [*regions, box])]
    kernel = make_kernel(op, lie[:-1], lie[-1], [False] * len(arrays), largest=[int(e) for e in box.extents[0]])
    tables = [_Place(t, 0) for t in kernel.tables()]
    starts = [p.origin(o, r) for p, o, r in zip([places[-1], *places[:-1]], [lie[-1], *lie[:-1]], [box, *regions])]
    at = (ctypes.c_void_p * (len(starts) + len(tables)))(*starts, *(t.address for t in tables))
    ends = np.ascontiguousarray(np.concatenate([box.lo, box.hi], axis=1).astype(np.int32))
    context = (ctypes.c_int64 * 3)(ends.ctypes.data, ctypes.addressof(at), box.rank)
    library = compiled(source_of(kernel))
    library.run(1, threads, ctypes.c_longlong(kernel.shared), ctypes.byref(context), 0, 1, 0, 0, 1)
    result = places[-1].array
    return np.moveaxis(result, -1, 1) if layouts[-1] == "last" and out.rank >= 2 else result


class _Place:
    """An array in memory of its own."""

    def __init__(self, array: np.ndarray, off: int) -> None:
        room = np.zeros(array.nbytes + 128, np.uint8)
        start = -room.ctypes.data % 64 + off * array.itemsize
        self.array = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.address = room.ctypes.data + start
        self.room = room

    def operand(self, kind: TensorType, layout: str, region: Boxes) -> Operand:
        """With the alignment that its virtual origin has."""
        lie = dense(kind, layout, region.extents[0].tolist())
        start = self.origin(lie, region)
        return dense(kind, layout, region.extents[0].tolist(), align=int(np.gcd(VECTOR, start)))

    def origin(self, operand: Operand, region: Boxes) -> int:
        """The address of the element whose index is all zeros, stored or not."""
        skipped = sum(int(lo) * s for lo, s in zip(region.lo[0], operand.strides))
        return self.address - skipped * self.array.itemsize
