// Products of matrices with batch dimensions (see `product`): rows are cells of the folded dimensions of the output, of
// which the last is that of a matrix's rows.
#pragma once
#include "tile.cuh"

namespace brick {

// `S` is printed per kernel:
//   T, OUTER and FOLDED (dimensions of the output before its columns: one product for each cell of the outer ones),
//   DEPTH, PADDED_DEPTH and PADDED_COLUMNS (those of packed B), COLUMNS, TOGETHER (elements of its depth that lie
//   together), PACKED, A_VECTOR, B_VECTOR, B_PAIRS, B_DOWN, WIDTH, ROWS_INNER (as in `product`),
//   a(d), b(d): strides along the dimensions of the output, the last the one along the depth of A, along the columns of
//   B; DEPTH_STRIDE along the depth of B; for packed B, `b` counts words of rows,
//   finish(at, index, a, b, sums): columns [a, b) of WIDTH.
template <class S> struct MatMulProblem {
    using T = typename S::T;
    static constexpr int A_VECTOR = S::A_VECTOR, WIDTH = S::WIDTH, PARTS = 1, RANK = S::OUTER + S::FOLDED + 1;
    static constexpr bool B_VECTOR = S::B_VECTOR, B_PAIRS = S::B_PAIRS, B_DOWN = S::B_DOWN, ROWS_INNER = S::ROWS_INNER;
    static constexpr bool PACKED = S::PACKED;
    static constexpr int STORED = PACKED ? S::PADDED_COLUMNS : S::COLUMNS;
    static constexpr long long BESIDE = S::b(RANK - 1), DOWN = PACKED ? S::PADDED_COLUMNS : S::DEPTH_STRIDE;
    static_assert(S::FOLDED <= ROW_WORDS);

    const Step& s;
    char* const* at;
    const T *left, *right;
    int rows = 1, depth = S::PADDED_DEPTH;
    int outer[S::OUTER + 1];

    BRICK_DEVICE MatMulProblem(const Step& s, char* const* at) : s(s), at(at) {
#pragma unroll
        for (int d = S::OUTER; d < RANK - 1; ++d) rows *= s.hi[d] - s.lo[d];
    }
    BRICK_DEVICE int begin() const { return s.lo[RANK - 1]; }
    BRICK_DEVICE int end() const { return s.hi[RANK - 1]; }

    BRICK_DEVICE int cells() const {
        int n = 1;
#pragma unroll
        for (int d = 0; d < S::OUTER; ++d) n *= s.hi[d] - s.lo[d];
        return n;
    }

    // Cell `c` of the outer dimensions becomes the problem.
    BRICK_DEVICE void choose(int c) {
        left = global(reinterpret_cast<const T*>(at[1]));
        right = global(reinterpret_cast<const T*>(at[2]));
#pragma unroll
        for (int d = S::OUTER - 1; d >= 0; --d) {
            const int extent = s.hi[d] - s.lo[d];
            outer[d] = s.lo[d] + c % extent;
            c /= extent;
            left += outer[d] * S::a(d);
            right += outer[d] * S::b(d);
        }
    }

    BRICK_DEVICE void locate(int m, int* row) const {
#pragma unroll
        for (int d = S::FOLDED - 1; d >= 0; --d) {
            const int lo = s.lo[S::OUTER + d], extent = s.hi[S::OUTER + d] - lo;
            row[d] = lo + (d ? m % extent : m);
            m /= extent;
        }
    }

    struct Row {
        const T* at;
        bool any;
    };

    BRICK_DEVICE Row row(const int* index) const {
        Row r{left, index[0] >= 0};
#pragma unroll
        for (int d = 0; d < S::FOLDED; ++d)
            if (r.any) r.at += index[d] * S::a(S::OUTER + d);
        return r;
    }
    template <int BUFFER> static constexpr BRICK_DEVICE bool fits() { return S::DEPTH % BUFFER == 0; }
    template <int BUFFER> static constexpr BRICK_DEVICE bool together() { return S::DEPTH % BUFFER == 0; }
    template <int BUFFER> BRICK_DEVICE int shift(int k) const { return k; }
    BRICK_DEVICE bool inside(const Row& r, int k) const { return r.any && k < S::DEPTH; }
    BRICK_DEVICE const T* from(const Row& r, int k) const { return r.at + k * S::a(RANK - 1); }

    BRICK_DEVICE const T* column(int n) const { return right + n * (PACKED ? S::TOGETHER : BESIDE); }
    static BRICK_DEVICE int deep() { return PACKED ? S::PADDED_DEPTH : S::DEPTH; }

    BRICK_DEVICE const T* b(int k, int n) const { return k < deep() && n < STORED ? column(n) + k * DOWN : nullptr; }

    template <int BUFFER> BRICK_DEVICE int next(int k) const { return k; }

    template <class Sum> BRICK_DEVICE void finish(const int* row, int n, int a, int b, const Sum* sums) const {
        int index[RANK];
#pragma unroll
        for (int d = 0; d < RANK - 1; ++d) index[d] = d < S::OUTER ? outer[d] : row[d - S::OUTER];
        index[RANK - 1] = n;
        S::finish(at, index, a, b, sums);
    }
};

template <class S, class Core> BRICK_DEVICE void matmul(const Step& s, char* const* at, char* shared) {
    MatMulProblem<S> p(s, at);
    if (p.rows <= 0) return;
    for (int c = 0; c < p.cells(); ++c) {
        p.choose(c);
        product<MatMulProblem<S>, Core>(p, shared);
    }
}

}  // namespace brick
