// The sums of a tile of a matrix product, in registers of a block's threads.
#pragma once
#include "mma.cuh"

namespace brick {

// What one block computes at a time: M rows by N columns, K words of the depth in each of BUFFERS buffers, with the
// depth of a buffer shared among SPLIT groups of threads. A has K words per row; B has N words per word of the depth,
// or K words per column, as A, if EITHER and the problem says so. Where A is not BUFFERED it has no part of the buffers:
// it is read where it lies, in shared memory.
template <int THREADS_, int M_, int N_, int K_, int BUFFERS_, int SPLIT_, bool EITHER, bool BUFFERED_> struct Tile {
    static constexpr int THREADS = THREADS_, M = M_, N = N_, K = K_, BUFFERS = BUFFERS_, SPLIT = SPLIT_;
    static constexpr bool BUFFERED = BUFFERED_;
    // Rows in shared memory are padded, so that the words of a fragment lie in different banks.
    static constexpr int A_ROW = K + 4, B_ROW = N + 8, A_WORDS = BUFFERED ? M * A_ROW : 0;
    static constexpr int ZEROS = BUFFERED ? 0 : K;  // words that stand for rows of A that are not there
    static constexpr int B_WORDS = EITHER && N * A_ROW > K * B_ROW ? N * A_ROW : K * B_ROW;
    static constexpr int BUFFER_WORDS = A_WORDS + B_WORDS, SUM_ROW = N + 8;
    // Rows whose sums fit into the buffers at once; kernels that finish more than 64 spill registers.
    static constexpr BRICK_DEVICE int rows_held(int rows) {
        return rows * SPLIT * SUM_ROW <= BUFFERS * BUFFER_WORDS ? rows : rows_held(rows / 2);
    }
    static constexpr int HELD = rows_held(M < 64 ? M : 64);
};

// Sums on CUDA cores: TM x TN to a thread, operands and sums of type T.
template <class T, class Shape, int TM, int TN> struct Lanes {
    using Word = T;
    using Sum = T;
    using Tile = Shape;
    static constexpr int PER_WORD = 1;  // elements to a word
    static constexpr bool WARPS = false;
    static constexpr int ROWS = Shape::M / TM, COLUMNS = Shape::N / TN;
    static constexpr int ACROSS = COLUMNS < 8 ? COLUMNS : 8, DOWN = 32 / ACROSS, WIDE = COLUMNS / ACROSS;  // of a warp
    static constexpr int LEFT = TM * TN > 32 ? 2 : 4;  // of A loaded together: as registers allow
    static_assert(ROWS * COLUMNS * Shape::SPLIT == Shape::THREADS && COLUMNS % ACROSS == 0 && ROWS % DOWN == 0);
    static_assert(Shape::K % (4 * Shape::SPLIT) == 0 && TN % 4 == 0);

    T sum[TM][TN];

    // Row r of the thread is `row() + r * ROWS`, column 4 q + c is `column() + 4 q COLUMNS + c`.
    static BRICK_DEVICE int group() { return warp() % (ROWS * COLUMNS / 32); }
    static BRICK_DEVICE int split() { return warp() / (ROWS * COLUMNS / 32); }
    static BRICK_DEVICE int row() { return group() / WIDE * DOWN + lane() / ACROSS; }
    static BRICK_DEVICE int column() { return (group() % WIDE * ACROSS + lane() % ACROSS) * 4; }
    // The rows of A that the thread loads are as many APART, from its first one on; of each the words from one on.
    static constexpr int LOADED = TM, APART = ROWS;
    static BRICK_DEVICE int first_row() { return row(); }
    static BRICK_DEVICE int first_word() { return split() * 4; }

    BRICK_DEVICE Lanes() {
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c) sum[r][c] = T(0);
    }

    template <bool, bool, class Rows> BRICK_DEVICE void multiply(const Rows& a, const T* b) {
        b += split() * 4 * Shape::B_ROW + column();
#pragma unroll
        for (int step = 0; step < Shape::K / 4 / Shape::SPLIT; ++step) {
            const int k = step * Shape::SPLIT * 4;
            Vector<T, LEFT> left[TM];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (j % LEFT == 0)
#pragma unroll
                    for (int r = 0; r < TM; ++r) left[r] = load<LEFT>(a.row(r) + k + j);
                Vector<T, 4> right[TN / 4];
#pragma unroll
                for (int q = 0; q < TN / 4; ++q) right[q] = load<4>(b + (k + j) * Shape::B_ROW + q * 4 * COLUMNS);
#pragma unroll
                for (int r = 0; r < TM; ++r)
#pragma unroll
                    for (int c = 0; c < TN; ++c) sum[r][c] += left[r].v[j % LEFT] * right[c / 4].v[c % 4];
            }
        }
    }

    // The sums of rows [first, first + HELD) of the tile, to [split][row][SUM_ROW].
    BRICK_DEVICE void put(T* to, int first) const {
        to += split() * Shape::HELD * Shape::SUM_ROW + column();
#pragma unroll
        for (int r = 0; r < TM; ++r) {
            const int at = row() + r * ROWS - first;
            if (at < 0 || at >= Shape::HELD) continue;
#pragma unroll
            for (int q = 0; q < TN / 4; ++q) {
                const Vector<T, 4> v{sum[r][q * 4], sum[r][q * 4 + 1], sum[r][q * 4 + 2], sum[r][q * 4 + 3]};
                store(to + at * Shape::SUM_ROW + q * 4 * COLUMNS, v);
            }
        }
    }
};

// Sums on tensor cores: DOWN x ACROSS warps, and SPLIT of them along the depth.
template <class T, class Shape, int DOWN, int ACROSS> struct Warps {
    using Word = unsigned;
    using Sum = float;
    using Tile = Shape;
    static constexpr int PER_WORD = 4 / sizeof(T);
    static constexpr bool WARPS = true;
    static constexpr int ROWS = Shape::M / DOWN, COLUMNS = Shape::N / ACROSS, MI = ROWS / 16, NI = COLUMNS / 8;
    static_assert(DOWN * ACROSS * Shape::SPLIT * 32 == Shape::THREADS && ROWS % 16 == 0 && COLUMNS % 8 == 0);
    static_assert(Shape::K % (8 * Shape::SPLIT) == 0);

    float sum[MI][NI][4];

    static BRICK_DEVICE int split() { return warp() / (DOWN * ACROSS); }
    static BRICK_DEVICE int row() { return warp() % (DOWN * ACROSS) / ACROSS * ROWS; }
    static BRICK_DEVICE int column() { return warp() % ACROSS * COLUMNS; }
    static constexpr int LOADED = MI, APART = 16;  // as of Lanes
    static BRICK_DEVICE int first_row() { return row() + lane() % 16; }
    static BRICK_DEVICE int first_word() { return lane() / 16 * 4 + split() * 8; }

    BRICK_DEVICE Warps() {
#pragma unroll
        for (int i = 0; i < MI * NI * 4; ++i) sum[i / 4 / NI][i / 4 % NI][i % 4] = 0;
    }

    // ALONG: B has a row of words per column; ROUNDED: they are as the tensor cores take them.
    template <bool ALONG, bool ROUNDED, class Rows> BRICK_DEVICE void multiply(const Rows& a, const unsigned* b) {
        warp_sync();  // filling the next buffer may have made the lanes diverge
        const int k = split() * 8;
        if (ALONG) b += (column() + lane() / 16 % NI * 8 + lane() % 8) * Shape::A_ROW + lane() / 8 % 2 * 4 + k;
        else b += (k + lane() % 4) * Shape::B_ROW + column() + lane() / 4;
#pragma unroll
        for (int step = 0; step < Shape::K / 8 / Shape::SPLIT; ++step) {
            const int k = step * Shape::SPLIT * 8;
            unsigned left[MI][4], right[NI + NI % 2][2];
#pragma unroll
            for (int i = 0; i < MI; ++i) {
                load_matrices(left[i], a.row(i) + k);
#pragma unroll
                for (int j = 0; j < 4; ++j) left[i][j] = fragment_word<T>(left[i][j]);
            }
            if constexpr (ALONG) {
#pragma unroll
                for (int i = 0; i < NI; i += 2) {
                    unsigned both[4];
                    load_matrices(both, b + i * 8 * Shape::A_ROW + k);
#pragma unroll
                    for (int j = 0; j < 4; ++j) right[i + j / 2][j % 2] = both[j];
                }
            } else {
#pragma unroll
                for (int i = 0; i < NI * 2; ++i)
                    right[i / 2][i % 2] = b[(k + i % 2 * 4) * Shape::B_ROW + i / 2 * 8];
            }
            if constexpr (!ROUNDED)
#pragma unroll
                for (int i = 0; i < NI * 2; ++i) right[i / 2][i % 2] = fragment_word<T>(right[i / 2][i % 2]);
#pragma unroll
            for (int i = 0; i < MI; ++i)
#pragma unroll
                for (int j = 0; j < NI; ++j) mma<T>(sum[i][j], left[i], right[j]);
        }
    }

    BRICK_DEVICE void put(float* to, int first) const {
#pragma unroll
        for (int i = 0; i < MI * 2; ++i) {
            const int at = row() + i / 2 * 16 + i % 2 * 8 + lane() / 4 - first;
            if (at < 0 || at >= Shape::HELD) continue;
#pragma unroll
            for (int j = 0; j < NI; ++j) {
                const Vector<float, 2> v{sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]};
                store(to + (split() * Shape::HELD + at) * Shape::SUM_ROW + column() + j * 8 + lane() % 4 * 2, v);
            }
        }
    }
};

}  // namespace brick
