"""Several kernels in one library."""

from __future__ import annotations

import ctypes

import numpy as np

from brickrt.ops.cpu import all_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.cpu.compile import LoadedObjects
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import compiled_code, outline
from brickrt.ops.expr import Arg, apply
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType

HOST = Isa(16, 32)
DOUBLE = np.dtype(np.float64)
LENGTH = 6


def kernel(function: str) -> Kernel:
    """function(x) of a short vector: a tail alone."""
    op, operand = Map(apply(function, Arg(DOUBLE, 0))), dense(TensorType((LENGTH,), DOUBLE))
    family = choose_kernel(op, [operand], operand, HOST)
    return family(op, (operand,), operand, HOST, (False,), (0,))


def run(library: LoadedObjects, name: str, x: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    y = np.zeros(LENGTH)
    operands, box = np.array([a.ctypes.data for a in (y, x, sizes)]), np.array([0, LENGTH])
    library.function(name, ctypes.c_void_p, ctypes.c_void_p)(operands.ctypes.data, box.ctypes.data)
    return y


def test_constants_and_the_c_library_in_several_objects():
    functions = {"tan": np.tan, "neg": np.negative, "exp": np.exp, "abs": np.abs, "log": np.log}
    library, sizes = LoadedObjects(), dict[str, np.ndarray]()
    for name in functions:
        code = compiled_code(kernel(name), f"k_{name}")
        table = code.table(outline(kernel(name)))
        assert table is not None
        sizes[name] = table
        library.add(code.image)
    x = np.linspace(0.1, 0.6, LENGTH)
    for name, expected in functions.items():
        np.testing.assert_allclose(run(library, f"k_{name}", x, sizes[name]), expected(x), rtol=1e-15)
