"""Winograd's minimal filtering F(m, r): the matrices, and the transforms as straight code on vectors.

Points are pairs ±p and ∞, and 0 where n = m + r - 1 is even; a pair shares the even and odd halves of its polynomials.
Those of F(4, 3), ±√½ and ±√2, keep the error at a few 1e-6 of the largest output, a quarter of what the textbook's ±1,
±2 give. F(1, 1) is the identity. (A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import fill
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE, LARGEST_EXPONENT
from brickrt.ops.cpu.winograd.axes import Axes, Axis

TINY = np.finfo(np.float32).tiny
MOST_VECTORS = 8  # of a row, a power of two
CHUNK = 512  # filters transformed at a time: so few that a BLAS does not wake its threads, which then spin


def weight_matrix(axis: Axis) -> np.ndarray:
    """G, [n, taps]: a filter's values at the points, scaled; float64."""
    if axis.n == 1:
        return np.ones((1, 1))
    nodes = [*[0.0] * has_zero(axis.n), *(sign * p for p in axis.points for sign in (1, -1))]
    rows = [np.array([a**k for k in range(axis.taps)]) / np.prod([a - b for b in nodes if b != a]) for a in nodes]
    return np.array([*rows, [0] * (axis.taps - 1) + [1]])


def input_matrix(axis: Axis) -> np.ndarray:
    """Bᵀ, [n, n]: what `input_rows` computes; float64."""
    if axis.n == 1:
        return np.ones((1, 1))
    first, end = int(has_zero(axis.n)), axis.n
    rows = np.zeros((axis.n, axis.n))
    rows[-1, first::2] = monic(axis.points)
    if first:
        rows[0, ::2] = monic(axis.points)
    for n, p in enumerate(axis.points):
        others = monic([q for q in axis.points if q != p])
        for sign in (0, 1):
            row = rows[first + 2 * n + sign]
            row[1 + first : end : 2] = others
            row[first : end - 1 : 2] = (p, -p)[sign] * np.array(others)
    return rows


def has_zero(n: int) -> bool:
    """Whether 0 is among the n points."""
    return n % 2 == 0


def walked(w: np.ndarray, axes: Axes, missing: int) -> np.ndarray:
    """[M, C, k…] → [M and `missing` more, C, swept, down, across]"""
    w = np.pad(w, [(0, missing), *[(0, 0)] * (w.ndim - 1)]) if missing else w
    dim = 2 if axes.swept.dim is None else axes.swept.dim
    return np.moveaxis(w.reshape(*w.shape[:2], *(1,) * (5 - w.ndim), *w.shape[2:]), dim, 2)


def apart_by_residue(w: np.ndarray, down: Axis, across: Axis) -> np.ndarray:
    """[M, C, swept, taps down, taps across] → [M, swept, s², C, taps, taps] of each residue, zero where it has none."""
    missing = [(0, axis.residues * axis.taps - axis.r) for axis in (down, across)]
    w = np.pad(w, [*[(0, 0)] * 3, *missing]) if any(after for _, after in missing) else w
    w = w.reshape(*w.shape[:3], down.taps, down.residues, across.taps, across.residues)
    w = w.transpose(0, 2, 4, 6, 1, 3, 5)  # [M, swept, s, s, C, down, across]
    return w.reshape(w.shape[0], w.shape[1], -1, w.shape[4], down.taps, across.taps)


def transformed_tiles(w: np.ndarray, width: int, down: Axis, across: Axis) -> Iterator[np.ndarray]:
    """[M, …, C, taps down, taps across] → of each `width` output channels [n down * n across, …, C, width], float32:
    of so few that what follows finds them in a cache, and in the order in which they are stored."""
    both = np.kron(weight_matrix(down), weight_matrix(across))
    for tile in w.reshape(-1, width, *w.shape[1:-2], both.shape[1]):
        filters = np.ascontiguousarray(np.moveaxis(np.moveaxis(tile, -1, 0), 1, -1))
        out = np.empty((len(both), *filters.shape[1:]), np.float32)
        _transform(both, filters.reshape(len(filters), -1), out.reshape(len(both), -1))
        yield out


def _transform(both: np.ndarray, filters: np.ndarray, out: np.ndarray) -> None:
    """In float64, a cache's worth of filters at a time."""
    for start in range(0, filters.shape[1], CHUNK):
        out[:, start : start + CHUNK] = both @ filters[:, start : start + CHUNK].astype(np.float64)


def must_not_transform(w: np.ndarray) -> np.ndarray:
    """[1] where weights are not finite, or so large that sums of them may not be; else [0]. Of their type."""
    largest = max(w.max(initial=0), -w.min(initial=0)) if np.isfinite(w).all() else np.inf
    return np.array([float(largest) >= 2.0**LARGEST_EXPONENT], w.dtype)


def plane_sizes(axes: Axes) -> np.ndarray:
    """Powers of two near to what transformed inputs are in each plane, [n²], if inputs are independent of each other
    and the sum of their squares over a tile is 1, times 2: largest weights are about twice as large as others."""
    rows = np.kron(*(np.linalg.norm(input_matrix(axis), axis=1) for axis in (axes.down, axes.across)))
    return np.exp2(np.round(np.log2(2 * rows / np.sqrt(axes.planes)))).astype(np.float32)


def paired_weights(tiles: Iterable[np.ndarray], into: Sequence[np.ndarray], channels: int, sizes: np.ndarray) -> None:
    """Writes tiles [n², swept tap, 1, C, lanes], which it overwrites, `into` three arrays: [n², block, swept tap, 1, C,
    lanes], with each plane's output channels times powers of two that bring their largest magnitudes to the plane's
    size or up to twice that; what takes them back, [n², block, lanes]; and the sums of the products of their pairs, of
    even lanes less those of odd ones, [n², block, swept tap, lanes].

    Of every three blocks of the first `channels` the second and the third are paired; what is multiplied in one step
    lies together.
    """
    scaled, backs, pairs = into
    for block, u in enumerate(tiles):
        planes, swept, _, _, lanes = u.shape
        rows = _wide_rows(u)
        largest = _wide_rows(np.abs(u)).max(axis=1).reshape(planes, -1, lanes).max(axis=1)
        back = _back(largest, sizes)
        rows /= np.tile(back, rows.shape[-1] // lanes)[:, None]
        backs[:, block] = np.where(largest == 0, 0, back)  # the sums of zeros are not quite 0
        apart = u[:, :, 0, :channels].reshape(planes, swept, -1, 3, lanes, lanes)
        lain = scaled[:, block, :, 0]
        lain[:, :, :channels].reshape(planes, swept, -1, lanes, 3, lanes)[...] = apart.swapaxes(-3, -2)
        lain[:, :, channels:] = u[:, :, 0, channels:]
        pairs[:, block] = _pair_sums(apart[..., 1, :, :], apart[..., 2, :, :])


def _wide_rows(u: np.ndarray) -> np.ndarray:
    """[n², …, lanes] → [n², rows, lanes of several], where they go into rows evenly: NumPy takes long for rows of one
    vector each."""
    planes, lanes = len(u), u.shape[-1]
    return u.reshape(planes, -1, lanes * math.gcd(u[0].size // lanes, MOST_VECTORS))


def _back(largest: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Powers of two by which weights of these largest magnitudes are divided."""
    usable = np.isfinite(largest) & (largest > 0)
    exponents = np.frexp(np.where(usable, largest, 1))[1] - 1
    return np.maximum(np.ldexp(1 / sizes[:, None], exponents).astype(np.float32), TINY)


def _pair_sums(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Adds up products of pairs of weights, [n², swept tap, three blocks, C, lanes] → [n², swept tap, lanes]."""
    products = one.astype(np.float64)
    products *= other
    products[..., 1::2, :] *= -1
    return np.nan_to_num(products.sum(axis=(2, 3)), posinf=0, neginf=0)


def returning_exponents(tiles: Iterable[np.ndarray], sizes: np.ndarray) -> np.ndarray:
    """Exponents of the powers of two that take sums back of weights brought to the sizes of their planes, of tiles [n²,
    swept tap, 1, C, lanes] → [n², block, lanes]; for an output channel of zeros, whose sums are not quite 0, one that
    makes 0 of anything."""
    largest = np.stack([np.abs(u).max(axis=(1, 2, 3)) for u in tiles], axis=1)
    back = _back(largest.reshape(len(largest), -1), sizes).reshape(largest.shape)
    exponents = (np.frexp(back)[1] - 1).clip(1 - EXPONENT_OF_ONE, EXPONENT_OF_ONE - 1)
    return np.where(largest == 0, -EXPONENT_OF_ONE, exponents)


def monic(points: Sequence[float]) -> list[float]:
    """Coefficients of ∏(z - p²), ascending."""
    return [float(c) for c in np.poly([p * p for p in points])[::-1]] if points else [1.0]


def combine(f: FunctionEmitter, factors: Sequence[float], vectors: Sequence[ir.Value]) -> ir.Value:
    """Sum of factor times vector, terms with factor 1 first."""
    (first, acc), *rest = sorted(zip(factors, vectors, strict=True), key=lambda term: term[0] != 1)
    acc = acc if first == 1 else f.b.fmul(fill(acc.type, first), acc)
    for factor, value in rest:
        acc = f.b.fadd(acc, value) if factor == 1 else f.fma(fill(value.type, factor), value, acc)
    return acc


def input_rows(f: FunctionEmitter, d: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """Bᵀ d for n vectors."""
    if axis.n == 1:
        return list(d)
    points, zero = axis.points, has_zero(axis.n)
    out = [combine(f, monic(points), d[0::2])] if zero else []
    for p in points:
        others = monic([q for q in points if q != p])
        alone, scaled = (combine(f, others, part) for part in ((d[2::2], d[1:-1:2]) if zero else (d[1::2], d[:-1:2])))
        if p == 1:
            out += [f.b.fadd(alone, scaled), f.b.fsub(alone, scaled)]
        else:
            out += [f.fma(fill(scaled.type, p), scaled, alone), f.fma(fill(scaled.type, -p), scaled, alone)]
    return [*out, combine(f, monic(points), d[int(zero) :: 2])]


def weight_rows(f: FunctionEmitter, w: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """G w: n vectors from as many as there are taps."""
    if axis.n == 1:
        return list(w)
    matrix = weight_matrix(axis)
    out = [f.b.fmul(fill(w[0].type, matrix[0, 0]), w[0]) if matrix[0, 0] != 1 else w[0]] if has_zero(axis.n) else []
    for plus, minus in matrix[len(out) : -1].reshape(-1, 2, axis.taps):
        same = bool(plus[0] * minus[0] > 0)  # the two differ in the sign of the odd terms, else of the even ones
        even, odd = combine(f, plus[0::2], w[0::2]), combine(f, plus[1::2], w[1::2])
        out += [f.b.fadd(even, odd), f.b.fsub(even, odd) if same else f.b.fsub(odd, even)]
    return [*out, w[-1]]


def output_rows(f: FunctionEmitter, s: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """Aᵀ s: m vectors from n."""
    if axis.n == 1:
        return list(s)
    zero = has_zero(axis.n)
    pairs = [(f.b.fadd(a, c), f.b.fsub(a, c)) for a, c in zip(s[zero:-1:2], s[zero + 1 : -1 : 2], strict=True)]
    ends = {0: s[:1] if zero else [], axis.m - 1: s[-1:]}
    rows = []
    for k in range(axis.m):
        alone = ends.get(k, [])
        factors = [1.0] * len(alone) + [p**k for p in axis.points]
        rows.append(combine(f, factors, [*alone, *(pair[k % 2] for pair in pairs)]))
    return rows
