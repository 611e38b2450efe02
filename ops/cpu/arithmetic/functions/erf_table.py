"""erf of sixteen float32 lanes by a table of polynomials, which a permutation of registers looks up.

|x| is cut into sixteen intervals around k / SCALE; there erf(k / SCALE + t) = base + t·(c1 + … + c5·t⁴), where base is
erf(k / SCALE), and around zero t itself, so that small results keep their relative accuracy. Errors stay below 1.3 ulp.
The coefficients are nearly minimax, each fitted after those before it were rounded.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.table_lookup import FLOATS, WORDS, look_up
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import fill

SCALE = 3.9
TOP = 15.4 / SCALE  # erf is 1 from there on
# Added to a small float, this leaves the nearest whole number in the low bits.
ROUNDER = 12582912.0
COEFFICIENTS = (
    (
        0.0,
        0.28311038,
        0.531693816,
        0.723341584,
        0.853074014,
        0.930182755,
        0.970423281,
        0.988861799,
        0.996279657,
        0.998899817,
        0.999712348,
        0.9999336,
        0.99998647,
        0.999997556,
        0.999999642,
        0.99999994,
    ),
    (
        0.128379166,
        1.05657864,
        0.867445409,
        0.624418974,
        0.394097328,
        0.21808435,
        0.105813012,
        0.0450139567,
        0.0167899225,
        0.00549090886,
        0.00157446472,
        0.000395836571,
        8.72553719e-05,
        1.68640963e-05,
        2.85777128e-06,
        4.24606981e-07,
    ),
    (
        0.0,
        -0.270908177,
        -0.444835603,
        -0.480318725,
        -0.404197574,
        -0.279603094,
        -0.162790313,
        -0.0808003694,
        -0.0344358906,
        -0.0126705812,
        -0.00403319066,
        -0.00111767894,
        -0.000267395371,
        -5.29744757e-05,
        -1.58070961e-05,
        -3.50361034e-07,
    ),
    (
        -0.376122981,
        -0.305875093,
        -0.137062013,
        0.0381702296,
        0.145008206,
        0.166275278,
        0.131693825,
        0.0816741809,
        0.0415028296,
        0.017664114,
        0.00637601363,
        0.00196722266,
        0.000521551468,
        0.000119263314,
        2.35873649e-05,
        4.04319098e-06,
    ),
    (
        0.0,
        0.128339306,
        0.182142645,
        0.144812465,
        0.0602903441,
        -0.0126389721,
        -0.0466576517,
        -0.0459637828,
        -0.0313163958,
        -0.0162480697,
        -0.00704753725,
        -0.00237408397,
        -0.000770922983,
        -0.000325924309,
        0.000204222844,
        -6.38628335e-05,
    ),
    (
        0.112209454,
        0.0778879598,
        0.00349585991,
        -0.0554603711,
        -0.0678416565,
        -0.0429602601,
        -0.0107261725,
        0.00859598536,
        0.0129680512,
        0.00960791763,
        0.00511058234,
        0.002138115,
        0.000730703527,
        0.000208109152,
        4.99967209e-05,
        1.02142667e-05,
    ),
)


def erf_by_table(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """erf(x) for x of <16 x float>, on processors with AVX-512."""
    rounder, top = fill(FLOATS, ROUNDER), fill(FLOATS, TOP)
    size = f.math("fabs", x)
    size = f.b.select(f.b.fcmp_ordered("<", top, size), top, size)  # NaN stays
    shifted = f.fma(size, fill(FLOATS, SCALE), rounder)
    number = f.b.bitcast(shifted, WORDS)
    t = f.fma(f.b.fsub(rounder, shifted), fill(FLOATS, 1 / SCALE), size)
    bases, *slopes = (look_up(f, row, number) for row in COEFFICIENTS)
    slope = slopes[-1]
    for c in reversed(slopes[:-1]):
        slope = f.fma(slope, t, c)
    base = f.b.select(f.b.fcmp_ordered("==", shifted, rounder), t, bases)
    return f.math("copysign", f.fma(slope, t, base), x)
