"""CUDA kernels that call back: NumPy computes each box from the operators' definitions, on the memory that the records
name. So records, launches and streams are tested with whole networks before there is a kernel for every operator, and
without compiling any.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brickrt.ops.base import Op, Slab
from brickrt.ops.cuda.kernel import Kernel, Precision
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Boxes
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.cuda.schedule import argument_table
from tests.support.cuda.host_driver import HostDriver, HostFunction
from tests.support.cuda.host_kernels import compiled

MOST_KERNELS = 512
_KERNELS: list[Kernel] = []
_FAULTS: list[BaseException] = []
_RUNNING: list[CallbackDriver] = []  # the driver whose kernel runs


class CallbackKernel(Kernel):
    """The text depends on everything, so that no two kernels are taken for one."""

    headers = ("callback.hpp",)

    def emit(self, name: str) -> str:
        if self not in _KERNELS:
            _KERNELS.append(self)
        call = f"brick_callback(brick_number({_KERNELS.index(self)}), s.lo, s.hi, at);"
        return f"BRICK_DEVICE void {name}(const brick::Step& s, char* const* at, char*) {{ {call} }}"


def make_callback_kernel(
    op: Op,
    ins: Sequence[Operand],
    out: Operand,
    packed: Sequence[bool],
    precision: Precision,
    largest: Sequence[int],
    most_shared: int,
) -> Kernel:
    return CallbackKernel(op, tuple(ins), out, tuple(packed), precision, tuple(largest), most_shared)


@ctypes.CFUNCTYPE(None, ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2, ctypes.POINTER(ctypes.c_void_p))
def _called(number: int, lo: Any, hi: Any, at: Any) -> None:
    try:
        kernel, driver = _KERNELS[number], _RUNNING[0]
        if driver.strikes is not None and driver.strikes(kernel, tuple(lo[: kernel.out.type.rank])):
            driver.strike()
        _compute(kernel, lo, hi, at)
    except BaseException as e:
        _FAULTS.append(e)


def _compute(kernel: Kernel, lo: Any, hi: Any, at: Any) -> None:
    out, rank = kernel.out.type, kernel.out.rank
    box, ins = Boxes.one(lo[:rank], hi[:rank]), [o.type for o in kernel.ins]
    assert (box.extents[0] <= kernel.largest).all()
    slabs = []
    for i, operand in enumerate(kernel.ins):
        region = kernel.op.region(i, box, ins, out)
        slabs.append(Slab(_part(operand, at[1 + i] or 0, region), tuple(region.lo[0].tolist())))
    _part(kernel.out, at[0] or 0, box)[...] = kernel.op.evaluate(box, slabs, ins, out)


def _part(operand: Operand, origin: int, box: Boxes) -> np.ndarray:
    """A box of a tensor, in memory."""
    size, strides = operand.dtype.itemsize, np.asarray(operand.strides, np.int64)
    assert origin % operand.align == 0
    if not box.volumes[0]:
        return np.zeros(box.extents[0], operand.dtype)
    start, extents = int(box.lo[0] @ strides), box.extents[0]
    span = (int((extents - 1) @ strides) + 1) * size
    buffer = (ctypes.c_char * span).from_address(origin + start * size)
    return np.ndarray(tuple(extents), operand.dtype, buffer, strides=tuple((strides * size).tolist()))


class CallbackFunction(HostFunction):
    """Sources that differ in the numbers of their kernels alone are compiled once; these are set before a call."""

    def __init__(self, driver: HostDriver, source: KernelSource) -> None:
        number = re.compile(r"brick_number\((\d+)\)")
        self.numbers = list(dict.fromkeys(int(found) for found in number.findall(source.text)))
        text = number.sub(lambda found: f"brick_numbers[{self.numbers.index(int(found[1]))}]", source.text)
        names = dict.fromkeys(re.findall(r"(?:box|turns|tickets|fused)_[0-9a-f]{16}", text))
        for k, name in enumerate(names):
            text = text.replace(name, f"{name.partition('_')[0]}_{k}")
        self.name = source.name.partition("_")[0] + f"_{[*names].index(source.name)}" if names else source.name
        super().__init__(driver, source, compiled(text, *driver.flags), self.name)
        if self.numbers:
            ctypes.c_void_p.in_dll(self.library, "brick_callback").value = ctypes.cast(_called, ctypes.c_void_p).value

    def before(self) -> None:
        assert isinstance(self.driver, CallbackDriver)
        _RUNNING[:] = [self.driver]
        if self.numbers:
            table = (ctypes.c_int * MOST_KERNELS).in_dll(self.library, "brick_numbers")
            table[: len(self.numbers)] = self.numbers

    def after(self) -> None:
        if _FAULTS:
            fault = _FAULTS[0]
            _FAULTS.clear()
            raise fault


class CallbackDriver(HostDriver):
    """Blocks of one thread, whose kernels call back. Those that `strikes`, given a kernel and where its box begins, is
    true of make the device take a fault."""

    def __init__(self, **options: Any) -> None:
        self.strikes: Callable[[Kernel, tuple[int, ...]], bool] | None = None
        super().__init__(threads=1, flags=("-DBRICK_WARP=1", "-O0"), **options)

    def functions(self, sources: Sequence[KernelSource], progress: Any) -> list[HostFunction]:
        return [CallbackFunction(self, source) for source in sources]


def use_callbacks(monkeypatch: Any) -> None:
    monkeypatch.setattr(argument_table, "make_kernel", make_callback_kernel)
