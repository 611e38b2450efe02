"""Every function of the expression language in machine code, against its NumPy definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import emit_expr
from brickrt.ops.cpu.elementwise import map as map_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, VOID, vector
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.expr import Expr, apply, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.types import Boxes
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

FLOATS = ["float16", "float32", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOAT_UNARY, FLOAT_BINARY, INT_UNARY, INT_BINARY = (
    [name for name, function in FUNCTIONS.items() if function.operands == operands and kind in function.kinds]
    for kind in "fi"
    for operands in (1, 2)
)
TOLERANCE = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-13}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf, np.nan]


def compare(expr: Expr, *arrays: np.ndarray, rtol: float = 0.0, isa=HOST) -> None:
    """One box covers a vector loop, single vectors and a tail."""
    with np.errstate(all="ignore"):
        check(Map(expr), arrays, isa, boxes=[Boxes.whole(arrays[0].shape)], scratch=False, rtol=rtol, atol=0)


def floats(dtype: str, lo: float = -6, hi: float = 6, special: bool = True) -> np.ndarray:
    x = np.random.default_rng(0).uniform(lo, hi, 150)
    return np.concatenate([x, SPECIAL if special else []]).astype(dtype)


def integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of the values where integer arithmetic goes wrong, and of some random ones."""
    limits = np.iinfo(dtype)
    some = np.random.default_rng(0).integers(limits.min, limits.max, 5, dtype=dtype, endpoint=True).tolist()
    values = [limits.min, limits.min + 1, limits.max, 0, 1, 2, 3, 7, limits.max // 3, *some]
    values += [-1, -2, -3, -7] if limits.min < 0 else []
    pairs = np.array(list(itertools.product(values, values)), dtype)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", FLOAT_UNARY)
def test_unary_of_floats(fn, dtype):
    compare(apply(fn, arg(0, dtype)), floats(dtype), rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", FLOAT_BINARY)
def test_binary_of_floats(fn, dtype):
    x, y = floats(dtype)[-20:], floats(dtype)[-20:][::-1]
    x, y = (a.ravel() for a in np.meshgrid(x, y))
    compare(apply(fn, arg(0, dtype), arg(1, dtype)), x, y, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
@pytest.mark.parametrize("fn", ["max", "min"])
def test_nan_passes_max_with_a_constant(fn, value):
    for args in [(arg(0, "float32"), const(value, "float32")), (const(value, "float32"), arg(0, "float32"))]:
        compare(apply(fn, *args), floats("float32"))


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("fn", INT_BINARY)
def test_binary_of_integers(fn, dtype):
    compare(apply(fn, arg(0, dtype), arg(1, dtype)), *integers(dtype))


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_unary_of_integers(dtype):
    for fn in INT_UNARY:
        compare(apply(fn, arg(0, dtype)), integers(dtype)[0])


@pytest.mark.parametrize("dtype", [*UNSIGNED, "int32"])
@pytest.mark.parametrize("fn", ["shl", "shr"])
def test_shifts(fn, dtype):
    x = integers(dtype)[0]
    count = (np.arange(x.size) % 70).astype(dtype)
    compare(apply(fn, arg(0, dtype), arg(1, dtype)), x, count)


@pytest.mark.parametrize("fn", ["and", "or", "xor", "eq", "ne", "lt", "max", "min"])
def test_booleans(fn):
    x = np.array([False, True, False, True] * 9)
    y = np.array([False, False, True, True] * 9)
    compare(apply(fn, arg(0, bool), arg(1, bool)), x, y)
    compare(apply("not", apply(fn, arg(0, bool), arg(1, bool))), x, y)


@pytest.mark.parametrize(
    ("base", "exponent"), [("int32", "int32"), ("int64", "int64"), ("uint8", "int32"), ("int16", "int64")]
)
def test_powers_of_integers(base, exponent):
    bases = np.array([0, 1, 2, 3, 5, 7, 10] + ([-1, -2, -3] if base[0] == "i" else []))
    x, y = (a.ravel() for a in np.meshgrid(bases, [0, 1, 2, 3, 4, 5, 9, 17, 33, 62]))
    compare(apply("pow", arg(0, base), arg(1, exponent)), x.astype(base), y.astype(exponent))


def test_negative_powers_of_integers():
    x, y = (a.ravel() for a in np.meshgrid([1, -1, 2, -7], [-1, -2, -3]))
    compare(apply("pow", arg(0, "int32"), arg(1, "int32")), x.astype("int32"), y.astype("int32"))


@pytest.mark.parametrize(
    ("base", "exponent"), [("float32", "int64"), ("float32", "float64"), ("int32", "float32"), ("float16", "int32")]
)
def test_powers_of_mixed_types(base, exponent):
    x, y = (a.ravel() for a in np.meshgrid([1, 2, 3, 5, 7.5], [0, 1, 2, 3, 4]))
    compare(apply("pow", arg(0, base), arg(1, exponent)), x.astype(base), y.astype(exponent), rtol=1e-3)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.0, 2.2])
def test_constant_powers(exponent):
    for dtype in ("float32", "float64"):
        expr = apply("pow", arg(0, dtype), const(exponent, dtype))
        compare(expr, floats(dtype), rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("target", [*FLOATS, *SIGNED, *UNSIGNED, "bool"])
@pytest.mark.parametrize("source", [*FLOATS, *SIGNED, *UNSIGNED, "bool"])
def test_casts(source, target):
    """Values that the target holds, and for integers any; NumPy and ONNX leave floats out of range undefined."""
    if source in SIGNED + UNSIGNED:
        x = integers(source)[0]
    else:
        unsigned = target in UNSIGNED
        x = np.random.default_rng(0).uniform(0 if unsigned else -120, 120, 99).astype(source)
    compare(cast(arg(0, source), target), x, rtol=TOLERANCE.get(target, 0))


@pytest.mark.parametrize("target", [*SIGNED, *UNSIGNED])
def test_casts_of_floats_out_of_range_do_not_trap(target):
    x = arg(0, "float32")
    expr = apply("where", apply("isnan", apply("mul", x, const(0, "float32"))), const(1, target), cast(x, target))
    compare(expr, np.array([np.inf, -np.inf, np.nan, 3] * 5, np.float32))


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int32", "int64", "uint64"])
def test_casts_of_floats_saturate(source, target, isa):
    """The same for any number of lanes: the first 16 are whole vectors, what is left is not."""
    limits, kind = np.iinfo(target), np.dtype(source).type
    below = np.nextafter(kind(float(limits.max) + 1), kind(0))
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, below, -0.9, 0.9, 2.5, float(limits.min)] * 3, source)
    least = limits.min or 1 << 63  # negative numbers become unsigned as the signed ones of their bits
    wanted = [limits.max, least, 0, limits.max, least, int(below), 0, 0, 2, limits.min] * 3
    assert run_kernel(Map(cast(arg(0, source), target)), [x], Boxes.whole(x.shape), isa).tolist() == wanted


def test_cast_to_half_rounds():
    x = np.linspace(1, 1.01, 77, dtype=np.float32)
    compare(cast(cast(arg(0, "float32"), "float16"), "float32"), x)


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
def test_where(isa):
    x, y = floats("float32"), floats("float32")[::-1].copy()
    compare(
        apply("where", apply("lt", arg(0, "float32"), arg(1, "float32")), arg(0, "float32"), const(2, "float32")),
        x,
        y,
        isa=isa,
    )


def count_calls(expr: Expr, name: str) -> int:
    module = ir.Module()
    f = FunctionEmitter(module, "k", [vector(FLOAT, 4)], VOID)
    emit_expr(f, expr, [f.fn.args[0]], 4)
    f.finish()
    return str(module).count(f'call <4 x float> @"{name}')


def test_equal_subexpressions_are_computed_once():
    """sqrt(x)·sqrt(x) + sqrt(x), every sqrt a tree of its own."""
    roots = [apply("sqrt", arg(0, "float32")) for _ in range(3)]
    expr = apply("add", apply("mul", roots[0], roots[1]), roots[2])
    assert count_calls(expr, "llvm.sqrt") == 1


def test_shared_trees_of_exponential_size():
    x: Expr = arg(0, "float32")
    for _ in range(60):
        x = apply("add", x, apply("sqrt", x))
    assert count_calls(x, "llvm.sqrt") == 60


@pytest.mark.parametrize("isa", [HOST, AVX2])
@pytest.mark.parametrize("fn", ["erf", "tanh"])
@pytest.mark.parametrize("by", [2**0.5, -3.0, 1e-38, np.inf, 0.0])
def test_function_of_a_quotient_by_a_constant(fn, by, isa):
    quotient = apply("div", arg(0, "float32"), const(by, "float32"))
    compare(apply("add", apply(fn, quotient), quotient), floats("float32"), rtol=TOLERANCE["float32"], isa=isa)


def test_rewritten_parts_are_told_apart():
    """Σ erf(x / c) + tanh(x / c): divisions become products, which are nodes that nobody else holds."""
    x = arg(0, np.float32)
    total = x
    for c in (0.5, 0.75, 1.25, 1.5, 3.0):
        total = apply("add", total, apply("erf", apply("div", x, const(c, np.float32))))
        total = apply("mul", total, apply("tanh", apply("div", x, const(2 * c, np.float32))))
    compare(total, floats("float32", special=False), rtol=1e-5)
