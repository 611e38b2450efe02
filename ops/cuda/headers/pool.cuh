// Pooling: a thread computes V neighbouring channels of a window position at a time.
#pragma once
#include "math.cuh"
#include "vectors.cuh"

namespace brick {

// The number of taps t in [0, taps) with first + t · step < bound.
BRICK_DEVICE int taps_below(int bound, int first, int step, int taps) {
    const int count = bound > first ? (bound - first + step - 1) / step : 0;
    return count < taps ? count : taps;
}

enum PoolKind { MAX, AVERAGE, LP };

// P: T, A                  elements, and what they are computed in
//    DIMS, TAPS            spatial dimensions, elements of a window
//    KIND, NORM            what is computed, and the p of LP
//    V                     outputs at once along the dimension that order() has last; 1 unless their windows are equal
//    order(k)              dimensions of the tensor, outermost in memory first
//    from(d), to(d)        strides of input and output per dimension of the tensor
//    kernel, stride, dilation, pad (d), extent(d) of the input, counted_from(d), counted_to(d), padded(d): per spatial
//                          dimension; an average divides by the number of taps at indices of the range that counts;
//                          windows of a dimension that is not padded are all inside of the input
//    first()               what the combination starts with
template <class P> struct Pool {
    using T = typename P::T;
    using A = typename P::A;
    static constexpr int RANK = P::DIMS + 2;

    // Combines a window; x is the channel's element of index 0. Taps outside of the input read the element at its edge
    // and do not count: no load is conditional, so that all of them are in flight together.
    static BRICK_DEVICE void combine(const T* x, const int (&starts)[P::DIMS], int a, int b, A (&sum)[P::V]) {
        constexpr int TOGETHER = P::TAPS * P::V * sizeof(T) <= 256 ? P::TAPS : 8;
#pragma unroll(TOGETHER)
        for (int tap = 0; tap < P::TAPS; ++tap) {
            bool inside = true;
            long long offset = 0;
            int rest = tap;
#pragma unroll
            for (int d = P::DIMS - 1; d >= 0; --d) {
                int index = starts[d] + rest % P::kernel(d) * P::dilation(d);
                rest /= P::kernel(d);
                if (P::padded(d)) {
                    inside = inside && (unsigned)index < (unsigned)P::extent(d);
                    index = index < 0 ? 0 : index < P::extent(d) ? index : P::extent(d) - 1;
                }
                offset += index * P::from(2 + d);
            }
            A v[P::V] = {};
            fetch<P::V, 1, P::ALIGNED>(x + offset, a, b, v);
#pragma unroll
            for (int k = 0; k < P::V; ++k) sum[k] = inside ? with(sum[k], v[k]) : sum[k];
        }
    }

    static BRICK_DEVICE A with(A sum, A v) {
        if constexpr (P::KIND == MAX) return math::max(v, sum);
        else if constexpr (P::KIND == AVERAGE) return sum + v;
        else if constexpr (P::NORM == 1) return sum + math::abs(v);
        else if constexpr (P::NORM == 2) return sum + v * v;
        else return sum + math::pow(math::abs(v), (A)P::NORM);
    }

    static BRICK_DEVICE A finish(A sum, const int (&starts)[P::DIMS]) {
        if constexpr (P::KIND == AVERAGE) {
            int count = 1;
#pragma unroll
            for (int d = 0; d < P::DIMS; ++d)
                count *= taps_below(P::counted_to(d), starts[d], P::dilation(d), P::kernel(d)) -
                         taps_below(P::counted_from(d), starts[d], P::dilation(d), P::kernel(d));
            return sum / (A)(count > 1 ? count : 1);
        } else if constexpr (P::KIND == LP && P::NORM == 2) {
            return math::sqrt(sum);
        } else if constexpr (P::KIND == LP && P::NORM != 1) {
            return math::pow(sum, (A)1 / (A)P::NORM);
        } else {
            return sum;
        }
    }

    // The outputs [a, b) of V that begin at index c.
    static BRICK_DEVICE void some(const int (&c)[RANK], int a, int b, const T* x, T* y) {
        if (a == 0 && b == P::V) position(c, 0, P::V, x, y);  // constants here, so that no load is conditional
        else position(c, a, b, x, y);
    }
    static BRICK_DEVICE void position(const int (&c)[RANK], int a, int b, const T* x, T* y) {
        int starts[P::DIMS];
        bool reads = true;
        x += c[0] * P::from(0) + c[1] * P::from(1);
        y += c[0] * P::to(0) + c[1] * P::to(1);
#pragma unroll
        for (int d = 0; d < P::DIMS; ++d) {
            starts[d] = c[2 + d] * P::stride(d) - P::pad(d);
            y += c[2 + d] * P::to(2 + d);
            // A window of padding alone reads nothing: the box may have no element at the edge.
            reads = reads && starts[d] < P::extent(d) && starts[d] + (P::kernel(d) - 1) * P::dilation(d) >= 0;
        }
        A sum[P::V];
#pragma unroll
        for (int k = 0; k < P::V; ++k) sum[k] = P::first();
        if (reads) combine(x, starts, a, b, sum);
#pragma unroll
        for (int k = 0; k < P::V; ++k) sum[k] = finish(sum[k], starts);
        put<1, P::ALIGNED>(y, a, b, sum);
    }

    static BRICK_DEVICE void box(const Step& s, char* const* at) {
        constexpr int INNER = P::order(RANK - 1);
        const T* x = reinterpret_cast<const T*>(at[1]);
        T* y = reinterpret_cast<T*>(at[0]);
        int first[RANK], count[RANK], items = 1;
#pragma unroll
        for (int k = 0; k < RANK; ++k) {
            const int d = P::order(k), v = k == RANK - 1 ? P::V : 1;
            first[k] = s.lo[d] / v;
            count[k] = s.hi[d] > s.lo[d] ? (s.hi[d] + v - 1) / v - first[k] : 0;
            items *= count[k];
        }
        for (int item = thread(); item < items; item += threads()) {
            int c[RANK];
            unsigned rest = item;
#pragma unroll
            for (int k = RANK - 1; k > 0; --k) {
                c[P::order(k)] = first[k] + rest % count[k];
                rest /= count[k];
            }
            c[P::order(0)] = first[0] + rest;
            c[INNER] *= P::V;
            const int a = s.lo[INNER] - c[INNER], b = s.hi[INNER] - c[INNER];
            some(c, a > 0 ? a : 0, b < P::V ? b : P::V, x, y);
        }
    }
};

}  // namespace brick
