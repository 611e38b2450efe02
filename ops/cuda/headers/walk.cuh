// Box walks: how the threads of a block share the elements of a box, in vectors along the output's innermost dimension.
#pragma once
#include "portable.cuh"

namespace brick {

template <int... N> struct Ints {
    static constexpr int size = sizeof...(N);
    static BRICK_DEVICE constexpr int at(int k) {
        constexpr int all[] = {N..., 0};
        return all[k];
    }
};

// n / d for 0 ≤ n < 2^20 and d ≥ 1. Adding half to n makes up for the rounding of the product.
BRICK_DEVICE int small_quotient(int n, int d) { return (int)((n + 0.5f) * (1.0f / d)); }

// The ranges of a box along `Dims`, the dimensions of more than one element, outermost first. Bit d of JOINS says that
// dimension d lies in memory without a gap after the one before it. Where the box covers all of d, the two are joined:
// d gets the range of both, and the one before it only index 0. `cut` restricts one logical dimension further.
template <int RANK, class Dims, class Extents, unsigned JOINS> struct Box {
    static constexpr int R = Dims::size ? Dims::size : 1;
    int lo[R], hi[R];
    bool empty = false;

    BRICK_DEVICE explicit Box(const Step& s, int cut = -1, int cut_lo = 0, int cut_hi = 0) {
        lo[0] = 0, hi[0] = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d) empty |= s.lo[d] >= s.hi[d];
#pragma unroll
        for (int d = 0; d < Dims::size; ++d) {
            lo[d] = s.lo[Dims::at(d)], hi[d] = s.hi[Dims::at(d)];
            if (Dims::at(d) == cut) {
                lo[d] = lo[d] < cut_lo ? cut_lo : lo[d];
                hi[d] = hi[d] > cut_hi ? cut_hi : hi[d];
                empty |= lo[d] >= hi[d];
            }
        }
#pragma unroll
        for (int d = 1; d < Dims::size; ++d)
            if ((JOINS >> d & 1) && lo[d] == 0 && hi[d] == Extents::at(d)) {
                lo[d] = lo[d - 1] * Extents::at(d), hi[d] = hi[d - 1] * Extents::at(d);
                lo[d - 1] = 0, hi[d - 1] = 1;
            }
    }
};

// The items of a thread. An item is V elements along the innermost dimension from index k on, which is a multiple of V;
// elements outside of [begin, end) do not belong to the box.
template <int RANK, class Dims, class Extents, unsigned JOINS, int V> struct Items {
    static constexpr int R = Dims::size ? Dims::size : 1;
    struct Place {
        int i[R];  // indices along Dims, but for the last
        int k;     // index along the last; `end` where no item is left
    };
    int begin, end;
    int lo[R], count[R], digit[R], step[R];
    int next, items;

    BRICK_DEVICE explicit Items(const Step& s, int cut = -1, int cut_lo = 0, int cut_hi = 0) {
        const Box<RANK, Dims, Extents, JOINS> box(s, cut, cut_lo, cut_hi);
        begin = box.lo[R - 1], end = box.hi[R - 1];
        next = thread(), items = box.empty ? 0 : 1;
#pragma unroll
        for (int d = 0; d < R; ++d) {
            lo[d] = d + 1 < R ? box.lo[d] : begin / V;
            count[d] = d + 1 < R ? box.hi[d] - box.lo[d] : (end + V - 1) / V - begin / V;
            items *= count[d];
        }
        if (!items) return;
        int first = thread(), stride = threads();
#pragma unroll
        for (int d = R - 1; d > 0; --d) {
            const int a = small_quotient(first, count[d]), b = small_quotient(stride, count[d]);
            digit[d] = first - a * count[d], step[d] = stride - b * count[d];
            first = a, stride = b;
        }
        digit[0] = first, step[0] = stride;
    }
    BRICK_DEVICE bool more() const { return next < items; }
    BRICK_DEVICE Place take() {
        Place p;
#pragma unroll
        for (int d = 0; d + 1 < R; ++d) p.i[d] = lo[d] + digit[d];
        p.i[R - 1] = 0;
        p.k = more() ? (lo[R - 1] + digit[R - 1]) * V : end;
        next += threads();
        bool carry = false;
#pragma unroll
        for (int d = R - 1; d >= 0; --d) {
            digit[d] += step[d] + carry;
            carry = digit[d] >= count[d];
            if (carry) digit[d] -= count[d];
        }
        return p;
    }
};

// The tiles of a box, of at most TA elements along the innermost dimension and TB along dimension number B of `Dims`.
// All threads of the block are at the same tile.
template <int RANK, class Dims, class Extents, unsigned JOINS, int B, int TA, int TB> struct Tiles {
    static constexpr int R = Dims::size;
    int lo[R], hi[R], tiles[R], digit[R];
    int i[R];  // where the tile begins
    int na, nb;
    int left = 1;

    BRICK_DEVICE explicit Tiles(const Step& s, int cut = -1, int cut_lo = 0, int cut_hi = 0) {
        const Box<RANK, Dims, Extents, JOINS> box(s, cut, cut_lo, cut_hi);
#pragma unroll
        for (int d = 0; d < R; ++d) {
            lo[d] = box.lo[d], hi[d] = box.hi[d], digit[d] = 0;
            tiles[d] = (hi[d] - lo[d] + side(d) - 1) / side(d);
            left *= tiles[d];
        }
        if (box.empty) left = 0;
        place();
    }
    static BRICK_DEVICE constexpr int side(int d) { return d == R - 1 ? TA : d == B ? TB : 1; }
    BRICK_DEVICE bool more() const { return left > 0; }
    BRICK_DEVICE void next() {
        bool carry = true;
#pragma unroll
        for (int d = R - 1; d >= 0; --d) {
            digit[d] += carry;
            carry = digit[d] == tiles[d];
            if (carry) digit[d] = 0;
        }
        --left;
        place();
    }
    BRICK_DEVICE void place() {
#pragma unroll
        for (int d = 0; d < R; ++d) i[d] = lo[d] + digit[d] * side(d);
        na = hi[R - 1] - i[R - 1] < TA ? hi[R - 1] - i[R - 1] : TA;
        nb = hi[B] - i[B] < TB ? hi[B] - i[B] : TB;
    }
};

// The pairs (slow, fast) that a thread visits, of n in all: fast runs over 0 … fasts − 1 for each value of slow.
struct Pairs {
    int slow, fast, slow_step, fast_step, fasts, next, n;

    BRICK_DEVICE Pairs(int n, int fasts) : fasts(fasts), next(thread()), n(n) {
        slow = small_quotient(thread(), fasts), slow_step = small_quotient(threads(), fasts);
        fast = thread() - slow * fasts, fast_step = threads() - slow_step * fasts;
    }
    BRICK_DEVICE bool more() const { return next < n; }
    BRICK_DEVICE void step() {
        next += threads();
        slow += slow_step, fast += fast_step;
        if (fast >= fasts) fast -= fasts, ++slow;
    }
};

// Copies SLOWS rows of FASTS elements each: neighbouring threads have neighbours of a row, and each several rows, whose
// elements are all loaded before the first is stored. `threads` is a multiple of FASTS.
template <int SLOWS, int FASTS, class T, class S, class U>
BRICK_DEVICE void copy_rows(const T* from, S from_slow, S from_fast, T* to, U to_slow, U to_fast) {
    constexpr int UNDER_WAY = 4;
    const int first = thread() / FASTS, fast = thread() % FASTS, step = threads() / FASTS;
    from += first * from_slow + fast * from_fast, to += first * to_slow + fast * to_fast;
    from_slow *= step, to_slow *= step;
    for (int s = first; s < SLOWS; s += UNDER_WAY * step) {
        T x[UNDER_WAY];
#pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u, from += from_slow)
            if (s + u * step < SLOWS) x[u] = *from;
#pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u, to += to_slow)
            if (s + u * step < SLOWS) *to = x[u];
    }
}

// Copies a tile of `na` x `nb`, at most A x B, through shared memory: neighbours along A are contiguous in `to`, those
// along B in `from`.
template <int PITCH, int A, int B, class T, class S>
BRICK_DEVICE void exchange(const T* from, S a_apart, T* to, S b_apart, int na, int nb, T* tile) {
    constexpr int UNDER_WAY = 4;
    const bool whole = na == A && nb == B && threads() % A == 0 && threads() % B == 0;
    sync();  // until the tile before has been read
    if (whole) copy_rows<A, B>(from, a_apart, (S)1, tile, 1, PITCH);
    for (Pairs p(whole ? 0 : na * nb, nb); p.more();) {
        T x[UNDER_WAY];
        int at[UNDER_WAY];
#pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u, p.step()) {
            at[u] = p.more() ? p.fast * PITCH + p.slow : -1;
            if (p.more()) x[u] = from[p.slow * a_apart + p.fast];
        }
#pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u)
            if (at[u] >= 0) tile[at[u]] = x[u];
    }
    sync();
    if (whole) return copy_rows<B, A>(tile, PITCH, 1, to, b_apart, (S)1);
    for (Pairs p(na * nb, na); p.more(); p.step()) to[p.slow * b_apart + p.fast] = tile[p.slow * PITCH + p.fast];
}

// Elements k … k + V - 1 of a row; those outside of [lo, hi) are `fill`. WIDE: multiples of V are aligned.
template <bool WIDE, int V, class T>
BRICK_DEVICE Vector<T, V> read(const T* row, int k, int lo, int hi, T fill = T{}) {
    row = global(row);
    if (WIDE && k >= lo && k + V <= hi) return load<V>(row + k);
    Vector<T, V> x;
#pragma unroll
    for (int v = 0; v < V; ++v) x.v[v] = k + v >= lo && k + v < hi ? row[k + v] : fill;
    return x;
}
// The same for elements that are `stride` apart.
template <int V, class T, class S>
BRICK_DEVICE Vector<T, V> read_apart(const T* row, S stride, int k, int lo, int hi, T fill = T{}) {
    Vector<T, V> x;
#pragma unroll
    for (int v = 0; v < V; ++v) x.v[v] = k + v >= lo && k + v < hi ? row[(k + v) * stride] : fill;
    return x;
}
// The same for a row that repeats one element.
template <int V, class T> BRICK_DEVICE Vector<T, V> read_same(const T* row, int k, int hi) {
    const T one = k < hi ? *row : T{};
    Vector<T, V> x;
#pragma unroll
    for (int v = 0; v < V; ++v) x.v[v] = one;
    return x;
}
// Elements table[k] … table[k + V - 1] of a row, those `stride` apart; `fill` where the table says -1.
template <int V, class T, class S>
BRICK_DEVICE Vector<T, V> read_table(const T* row, S stride, const int* table, int k, int lo, int hi, T fill) {
    Vector<T, V> x;
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const int from = k + v >= lo && k + v < hi ? table[k + v] : -1;
        x.v[v] = from < 0 ? fill : row[from * stride];
    }
    return x;
}
template <bool WIDE, int V, class T> BRICK_DEVICE void write(T* row, int k, int lo, int hi, const Vector<T, V>& x) {
    if (WIDE && k >= lo && k + V <= hi) return store_global(row + k, x);
#pragma unroll
    for (int v = 0; v < V; ++v)
        if (k + v >= lo && k + v < hi) row[k + v] = x.v[v];
}
template <int V, class T, class S>
BRICK_DEVICE void write_apart(T* row, S stride, int k, int lo, int hi, const Vector<T, V>& x) {
#pragma unroll
    for (int v = 0; v < V; ++v)
        if (k + v >= lo && k + v < hi) row[(k + v) * stride] = x.v[v];
}

}  // namespace brick
