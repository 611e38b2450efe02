"""Compiles CPU kernels, calls them on boxes of tensors that lie in many ways, and compares with `Op.evaluate`.

Buffers end at a page that nobody may touch, so that a read or write past the end stops the test run. Tail lanes of
blocked tensors and everything around the output's box hold values that must neither leak nor change.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir

from brickrt.ops.base import Op, evaluate_whole
from brickrt.ops.cpu.all_kernels import KernelMaker
from brickrt.ops.cpu.compile import LoadedObjects
from brickrt.ops.cpu.emit.line_builder import module_text
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import Operand, dense, to_blocked
from brickrt.ops.cpu.sized_kernel import SizedCode, compiled_code, emit_sized, outline
from brickrt.ops.types import Boxes, TensorType, is_floating

HOST = Isa(16, 32)
ZEN4 = Isa(16, 32, "znver4", llvm.get_host_cpu_features().flatten())  # no instructions that the host has not
PACED = replace(ZEN4, cpu="icelake-server")  # which asks for weights at an even pace
AVX2 = Isa(8, 16, "haswell", "+avx2,+fma,+f16c")
HAS_AVX512 = "+avx512f" in ZEN4.features.split(",")  # without it, vectors of 16 lanes are two of eight
PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """A copy of `array`, in its own pages, between two without access: it ends where the second begins or, in `front`,
    begins where the first ends."""

    def __init__(self, array: np.ndarray, front: bool = False) -> None:
        pages = -(-max(array.nbytes, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, pages + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        offset = PAGE + (0 if front else pages - array.nbytes)
        self.address = start + offset
        self.array = np.frombuffer(self._map, array.dtype, array.size, offset).reshape(array.shape)
        self.array[...] = array
        for page in (start, start + PAGE + pages):
            if _LIBC.mprotect(ctypes.c_void_p(page), PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")


@dataclass(frozen=True)
class Stored:
    """Part of a tensor in memory: `origin` is the address that element 0,0,… would have."""

    operand: Operand
    memory: GuardedMemory
    origin: int


def poison(dtype: np.dtype) -> float | int:
    """What fills storage that nobody may read."""
    return np.nan if is_floating(dtype) else 0


def stored(array: np.ndarray, block: int, box: Boxes | None = None, front: bool = False) -> Stored:
    """The part of a whole tensor that `box` covers (all by default), alone in memory, plain or blocked."""
    lo, hi = ([0] * array.ndim, list(array.shape)) if box is None else (box.lo[0].tolist(), box.hi[0].tolist())
    if block > 1:
        lo[1] -= lo[1] % block
        hi[1] = min(-(-hi[1] // block) * block, array.shape[1])
    part = array[tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))]
    extents = part.shape
    if block > 1:
        channels = extents[1]
        part = to_blocked(part, block)
        if channels % block:
            part[:, -1, ..., channels % block :] = poison(array.dtype)
    operand = dense(TensorType(array.shape, array.dtype), block, extents)
    memory = GuardedMemory(part, front)
    return Stored(operand, memory, memory.address - element_offset(operand, lo) * array.itemsize)


def element_offset(operand: Operand, index: Sequence[int]) -> int:
    """Elements from the virtual origin to `index`, whose channel is the first of a block."""
    scaled = [i // operand.block if axis == 1 else i for axis, i in enumerate(index)]
    return sum(i * s for i, s in zip(scaled, operand.strides, strict=True))


_COMPILED: dict[str, list[tuple[SizedCode, LoadedObjects]]] = {}  # by outline: kernels of many sizes run the same code


@lru_cache(maxsize=256)
def compiled(kernel: Kernel) -> tuple[int, np.ndarray]:
    """The address of code that is good for a kernel, which may be another one's, and the table of sizes it reads."""
    found = outline(kernel)
    known = _COMPILED.setdefault(found.text, [])
    fitting = ((library, table) for code, library in known if (table := code.table(found)) is not None)
    library, table = next(fitting, (None, None))
    if library is None:
        if not HAS_AVX512 and kernel.isa.lanes == 16:
            skip_what_is_missing(emit_sized(kernel, "k")[0])
        broad = len(known) >= _narrow_codes(found.text)
        code, library = compiled_code(replace(kernel, broad=broad), "k"), LoadedObjects()
        table = code.table(found)
        library.add(code.image)
        known.append((code, library))
    assert table is not None
    return library.address("k"), table


def _narrow_codes(text: str) -> int:
    """From how many codes of an outline on the next is broad: from one on for an outline of four, so that broad code of
    all kinds is tried, and from two on for others, as it takes four times as long to compile and most tests run two
    sizes."""
    return 2 if crc32(text.encode()) % 4 else 1


def skip_what_is_missing(module: ir.Module) -> None:
    """Skips the test where code has instructions of AVX-512, and this processor has not."""
    if not HAS_AVX512 and "llvm.x86.avx512" in module_text(module):
        pytest.skip("this processor has no AVX-512")


def call(kernel: Kernel, origins: Sequence[int], box: Boxes) -> None:
    """Runs a kernel; `origins[0]` is the output's."""
    address, sizes = compiled(kernel)
    origins = [*origins[: kernel.pointers], sizes.ctypes.data]
    pointers = (ctypes.c_void_p * len(origins))(*origins)
    bounds = (ctypes.c_int64 * max(2 * box.rank, 1))(*np.stack([box.lo[0], box.hi[0]], 1).ravel().tolist())
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(pointers, bounds)


def run_kernel(
    op: Op,
    arrays: Sequence[np.ndarray],
    box: Boxes,
    isa: Isa = HOST,
    *,
    blocks: Sequence[int] | None = None,
    out_block: int = 1,
    packed: Sequence[bool] | None = None,
    scratch: bool = False,
    kernel_cls: KernelMaker | None = None,
) -> np.ndarray:
    """The output on one box, after checking that nothing outside the box was written, and nothing touched behind what
    is there of inputs and output, nor before it.

    `blocks[i]` is the block of input i (1: plain). With `scratch`, inputs and output are stored only where the box
    needs them, each at a virtual origin. `packed[i]`: input i is a constant that goes through `Kernel.pack`.
    """
    blocks = [1] * len(arrays) if blocks is None else blocks
    packed = [False] * len(arrays) if packed is None else packed
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    kind = op.infer(types)
    regions = [op.region(i, box, types, kind) if scratch and not c else None for i, c in enumerate(packed)]
    before = np.random.default_rng(0).integers(0, 2, kind.shape).astype(kind.dtype)
    parts = [*zip(arrays, blocks, regions), (before, out_block, box if scratch else None)]
    *ins, out = (stored(*part) for part in parts)
    operands = tuple(i.operand for i in ins)
    cls = kernel_cls or choose_kernel(op, operands, out.operand, isa)
    kind_of = cls.classify(op, operands, out.operand, box, isa)[1][0]
    kernel = cls(op, operands, out.operand, isa, tuple(packed), kind_of)
    constants = {i: GuardedMemory(packed_constant(kernel, i, a)) for i, a in enumerate(arrays) if packed[i]}
    work = GuardedMemory(np.full(max(kernel.workspace // 4, 1), np.nan, np.float32))
    owner = GuardedMemory(np.zeros(1, np.int64))
    results = []
    for given in ([*ins, out], [stored(*part, front=True) for part in parts]):
        origins = [constants[i].address if i in constants else s.origin for i, s in enumerate(given[:-1])]
        call(kernel, [given[-1].origin, *origins, work.address, owner.address], box)
        results.append(_result(given[-1], before, out_block, box, scratch))
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


def packed_constant(kernel: Kernel, i: int, array: np.ndarray) -> np.ndarray:
    """Constant input `i` as the kernel reads it, which is no more than the kernel foretells."""
    packed = np.concatenate([part.ravel() for part in kernel.pack_parts(i, array)])
    assert packed.size <= kernel.packed_elements(i)
    return packed


def from_blocked(array: np.ndarray, channels: int) -> np.ndarray:
    """The inverse of `to_blocked`."""
    n, blocks, *spatial, block = array.shape
    return np.moveaxis(array, -1, 2).reshape(n, blocks * block, *spatial)[:, :channels]


def _result(out: Stored, before: np.ndarray, block: int, box: Boxes, scratch: bool) -> np.ndarray:
    """The box's elements; everything else stored must still be as `before`."""
    array = out.memory.array
    if scratch:
        return from_blocked(array, int(box.extents[0, 1])) if block > 1 else array.copy()
    after = from_blocked(array, before.shape[1]) if block > 1 else array
    inside = np.zeros(before.shape, bool)
    inside[box.slices()] = True
    np.testing.assert_array_equal(after[~inside], before[~inside], "written outside the box")
    return after[box.slices()].copy()


def random_boxes(shape: Sequence[int], n: int, block: int = 1, seed: int = 0) -> list[Boxes]:
    """The whole, an empty box, and `n` random ones; channels are cut at multiples of `block`."""
    rng = np.random.default_rng(seed)
    result = [Boxes.whole(shape)]
    if shape:
        result.append(Boxes.one([0] * len(shape), [0] * len(shape)))
    for _ in range(n):
        lo, hi = [], []
        for axis, extent in enumerate(shape):
            step = block if axis == 1 else 1
            steps = -(-extent // step)
            a = int(rng.integers(0, max(steps, 1)))
            b = int(rng.integers(a, steps)) + 1 if steps else 0
            lo.append(a * step)
            hi.append(min(b * step, extent))
        result.append(Boxes.one(lo, hi))
    return result


def check(
    op: Op,
    arrays: Sequence[np.ndarray],
    isa: Isa = HOST,
    *,
    blocks: Sequence[int] | None = None,
    out_block: int = 1,
    packed: Sequence[bool] | None = None,
    boxes: Sequence[Boxes] | None = None,
    parts: Sequence[Boxes] | None = None,
    expected: np.ndarray | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    scratch: bool = True,
    kernel_cls: KernelMaker | None = None,
) -> None:
    """Compares the kernel with `expected` (by default the NumPy definition), in whole tensors and as scratch.

    Integers and booleans must be equal. By default `boxes` are `random_boxes`. Every shape of scratch is another kernel
    to compile, so only the last box runs as scratch, or `parts` where they are given, or none if `scratch` is off.
    """
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    shape = op.infer(types).shape
    whole = evaluate_whole(op, arrays) if expected is None else expected
    boxes = random_boxes(shape, 4, out_block) if boxes is None else list(boxes)
    parts = boxes[-1:] if parts is None else parts
    for alone, some in ((False, boxes), (True, parts if scratch else [])):
        for box in some:
            got = run_kernel(
                op, arrays, box, isa, blocks=blocks, out_block=out_block, packed=packed, scratch=alone,
                kernel_cls=kernel_cls,
            )  # fmt: skip
            where = f"box {box.lo[0].tolist()}..{box.hi[0].tolist()}, scratch={alone}"
            assert_equal(got, whole[box.slices()], rtol, atol, where)


def assert_equal(got: np.ndarray, want: np.ndarray, rtol: float, atol: float, where: str) -> None:
    """Floating-point results may differ by rounding, all others not at all."""
    if is_floating(want.dtype):
        want, got = (array.astype(np.float64) for array in (want, got))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=where)
    else:
        np.testing.assert_array_equal(got, want, err_msg=where)
