"""Every function of the expression language as C++, against its NumPy definition, on the host."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.cuda.printing.expressions import literal, print_expr
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.expr import Apply, Expr, apply, arg, cast, const
from brickrt.ops.types import is_floating
from tests.support.cuda.functors import print_functor
from tests.support.cuda.host_kernels import compiled, needs_compiler

pytestmark = needs_compiler
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

FLOATS = [np.dtype(d) for d in ("float16", BFLOAT16, "float32", "float64")]
SIGNED = [np.dtype(d) for d in ("int8", "int16", "int32", "int64")]
UNSIGNED = [np.dtype(d) for d in ("uint8", "uint16", "uint32", "uint64")]
INTS = SIGNED + UNSIGNED
ALL = [*FLOATS, *INTS, np.dtype(bool)]
FLOAT_UNARY, FLOAT_BINARY, INT_UNARY, INT_BINARY = (
    [name for name, function in FUNCTIONS.items() if function.operands == operands and kind in function.kinds]
    for kind in "fi"
    for operands in (1, 2)
)
PRECISION = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 4 * 2.0**-23, "float64": 4 * 2.0**-52}

_LOOP = """
extern "C" void check{n}(long long count, const char* const* at) {{
    for (long long i = 0; i < count; ++i) (({out}*)at[0])[i] = ({out})F{n}{{}}({args});
}}
"""


def run(cases: Sequence[tuple[Expr, Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """Values of expressions over arrays of one shape each, all in one library."""
    text = '#include "math.cuh"\n'
    for n, (expr, arrays) in enumerate(cases):
        args = ", ".join(f"({compute_ctype(a.dtype)})(({ctype(a.dtype)}*)at[{1 + k}])[i]" for k, a in enumerate(arrays))
        text += print_functor(f"F{n}", expr, [a.dtype for a in arrays])
        text += _LOOP.format(n=n, out=ctype(expr.dtype), args=args)
    library, results = compiled(text), []
    for n, (expr, arrays) in enumerate(cases):
        results.append(np.empty(arrays[0].shape, expr.dtype))
        held = [results[-1], *(np.ascontiguousarray(a) for a in arrays)]
        at = (ctypes.c_void_p * len(held))(*(a.ctypes.data for a in held))
        library[f"check{n}"](ctypes.c_longlong(results[-1].size), at)
    return results


def check(*cases: tuple[Expr, Sequence[np.ndarray]]) -> None:
    for (expr, arrays), got in zip(cases, run(cases)):
        with np.errstate(all="ignore"):
            want = round_to(evaluate_expr(expr, arrays), expr.dtype)
            near = PRECISION.get(expr.dtype.name, 0)
            least = np.finfo(np.float32).tiny if near else 0
            np.testing.assert_allclose(
                got.astype(np.float64) if near else got,
                want.astype(np.float64) if near else want,
                rtol=near,
                atol=least,
                err_msg=str(expr),
            )


def floats(dtype: np.dtype) -> np.ndarray:
    """All over the range, and where functions have corners."""
    rng = np.random.default_rng(0)
    corners = [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -0.5, 88, -88, 104, -104, 700, 1e-5, -1e-5, 3e38, np.inf, -np.inf, np.nan]
    spread = np.exp(rng.uniform(-20, 20, 60)) * rng.choice([-1, 1], 60)
    with np.errstate(over="ignore"):
        return np.concatenate([rng.uniform(-6, 6, 200), spread, corners]).astype(dtype)


def integers(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of the values where integer arithmetic goes wrong, and of some random ones."""
    limits = np.iinfo(dtype)
    some = np.random.default_rng(0).integers(limits.min, limits.max, 5, dtype=dtype, endpoint=True).tolist()
    edges = [limits.min, limits.min + 1, limits.max, 0, 1, 2, 3, 7, limits.max // 3, *some]
    edges += [-1, -2, -3, -7] if limits.min < 0 else []
    pairs = np.array(list(itertools.product(edges, edges)), dtype)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(x, x)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype) -> None:
    x = floats(dtype)
    check(*((apply(fn, arg(0, dtype)), [x]) for fn in FLOAT_UNARY))
    y, z = pairs(x[-40:])
    check(*((apply(fn, arg(0, dtype), arg(1, dtype)), [y, z]) for fn in FLOAT_BINARY))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constants(dtype) -> None:
    x = floats(dtype)
    constants = [0.0, -0.0, 0.1, -2.5, 1e-30, np.inf, -np.inf, np.nan]
    check(*((apply("max", arg(0, dtype), const(c, dtype)), [x]) for c in constants))
    check(*((apply("pow", arg(0, dtype), const(c, dtype)), [np.abs(x)]) for c in (0.5, 1, 2, 3, -1, 2.2)))


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integers(dtype) -> None:
    x, y = integers(dtype)
    check(*((apply(fn, arg(0, dtype)), [x]) for fn in INT_UNARY))
    check(*((apply(fn, arg(0, dtype), arg(1, dtype)), [x, y]) for fn in INT_BINARY))
    limits = np.iinfo(dtype)
    check(*((apply("add", arg(0, dtype), const(c, dtype)), [x]) for c in (limits.min, limits.max, 3)))


@pytest.mark.parametrize("dtype", [*UNSIGNED, *SIGNED], ids=str)
def test_shifts(dtype) -> None:
    x, count = pairs(np.arange(70).astype(dtype))
    x = x * integers(dtype)[0].max()
    check(*((apply(fn, arg(0, dtype), arg(1, dtype)), [x, count]) for fn in ("shl", "shr")))


def test_booleans() -> None:
    x, y = pairs(np.array([False, True]))
    a, b = arg(0, bool), arg(1, bool)
    fns = ["and", "or", "xor", "bitand", "bitor", "bitxor", "eq", "ne", "lt", "max", "min"]
    check(*((apply(fn, a, b), [x, y]) for fn in fns))
    check(*((apply(no, apply(fn, a, b)), [x, y]) for fn in fns for no in ("not", "bitnot")))
    check((apply("where", a, b, const(True, bool)), [x, y]))


def test_powers_of_integers() -> None:
    cases = []
    for base, exponent in [("int32", "int32"), ("int64", "int64"), ("uint8", "int32"), ("int16", "int64")]:
        bases = np.array([0, 1, 2, 3, 5, 7, 10] + ([-1, -2, -3] if base[0] == "i" else []))
        x, y = (a.ravel() for a in np.meshgrid(bases, [0, 1, 2, 3, 4, 5, 9, 17, 33, 62]))
        cases.append((apply("pow", arg(0, base), arg(1, exponent)), [x.astype(base), y.astype(exponent)]))
    x, y = (a.ravel() for a in np.meshgrid([1, -1, 2, -7], [-1, -2, -3]))
    check(*cases, (apply("pow", arg(0, "int32"), arg(1, "int32")), [x.astype("int32"), y.astype("int32")]))


def test_powers_of_mixed_types() -> None:
    cases = []
    kinds = [("float32", "int64"), ("float32", "float64"), ("int32", "float32"), ("float16", "int32")]
    for base, exponent in kinds:
        x, y = (a.ravel() for a in np.meshgrid([1, 2, 3, 5, 7.5], [0, 1, 2, 3, 4]))
        cases.append((apply("pow", arg(0, base), arg(1, exponent)), [x.astype(base), y.astype(exponent)]))
    check(*cases, (apply("pow", arg(0, "float32"), const(3, "int64")), [floats(np.dtype("float32"))]))


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts(source) -> None:
    """Values within 64 bits wrap as NumPy's do; what lies beyond is undefined there."""
    cases = []
    for target in ALL:
        if source in INTS:
            x = integers(source)[0]
        elif source.kind == "b":
            x = np.array([False, True])
        else:
            top = 6e4 if is_floating(target) else 120 if target == np.uint64 else 1e9
            low = 0 if target == np.uint64 else -1
            x = np.random.default_rng(0).uniform(low * top, top, 99).clip(-6e4, 6e4 if source == np.float16 else top)
            x = np.concatenate([x, [0, 0.9, 100.5]]).astype(source)
        cases.append((cast(arg(0, source), target), [x]))
    check(*cases)


def test_casts_of_floats_out_of_range() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 2.0**63, 1.5 * 2.0**63], np.float32)
    targets = [np.dtype(d) for d in ("int64", "uint64", "int32", "uint8")]
    top, bottom = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    whole = np.array([top, bottom, 0, top, bottom, top, top], np.int64)
    wanted = {t: whole.astype(t) for t in targets}
    wanted[np.dtype("uint64")] = np.array([2**64 - 1, 2**63, 0, 2**64 - 1, 2**63, 2**63, 3 * 2**62], np.uint64)
    for target, got in zip(targets, run([(cast(arg(0, "float32"), t), [x]) for t in targets])):
        np.testing.assert_array_equal(got, wanted[target])


def test_cast_to_half_rounds_in_the_middle_of_an_expression() -> None:
    x = np.linspace(1, 1.01, 77, dtype=np.float32)
    check(*((cast(cast(arg(0, "float32"), half), "float32"), [x]) for half in FLOATS[:2]))


def test_where() -> None:
    x, y = pairs(floats(np.dtype("float32"))[-30:])
    a, b = arg(0, "float32"), arg(1, "float32")
    check((apply("where", apply("lt", a, b), a, const(2, "float32")), [x, y]))


def test_equal_subexpressions_are_computed_once() -> None:
    """sqrt(x)·sqrt(x) + sqrt(x), every sqrt a tree of its own; and x ← x + sqrt(x), sixty times over."""
    roots = [apply("sqrt", arg(0, "float32")) for _ in range(3)]
    printed = print_expr(apply("add", apply("mul", roots[0], roots[1]), roots[2]), ["x"])
    assert printed.statements.count("sqrt") == 1
    x: Expr = arg(0, "float32")
    for _ in range(60):
        x = apply("add", x, apply("sqrt", x))
    assert print_expr(x, ["x"]).statements.count("sqrt") == 60


def test_errors() -> None:
    for fn, dtype in [("exp", "int32"), ("sub", "bool"), ("bitand", "float32")]:
        with pytest.raises(ValueError, match=f"{fn} is not defined for {dtype}"):
            print_expr(Apply(np.dtype(dtype), fn, (arg(0, dtype), arg(0, dtype))), ["x"])
    with pytest.raises(LookupError, match="complex64"):
        literal(0, np.dtype("complex64"))
