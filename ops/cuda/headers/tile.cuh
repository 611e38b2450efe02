// Matrix products of a block: tiles of outputs in registers, operands streamed through shared memory.
#pragma once
#include "mma.cuh"

namespace brick {

// What one block computes at a time: M rows by N columns, K words of the depth in each of `STAGES` buffers, with the
// depth of a buffer shared among SPLIT groups of threads. A has K words per row; B has N words per word of the depth,
// or K words per column, as A, if EITHER and the problem says so.
template <int THREADS_, int M_, int N_, int K_, int STAGES_, int SPLIT_, bool EITHER> struct Tile {
    static constexpr int THREADS = THREADS_, M = M_, N = N_, K = K_, STAGES = STAGES_, SPLIT = SPLIT_;
    // Rows in shared memory are padded, so that the words of a fragment lie in different banks.
    static constexpr int A_ROW = K + 4, B_ROW = N + 8, A_WORDS = M * A_ROW;
    static constexpr int B_WORDS = EITHER && N * A_ROW > K * B_ROW ? N * A_ROW : K * B_ROW;
    static constexpr int STAGE = A_WORDS + B_WORDS, SUM_ROW = N + 8;
    // Rows whose sums fit into the buffers at once; kernels that finish more than 64 spill registers.
    static constexpr BRICK_DEVICE int rows_held(int rows) {
        return rows * SPLIT * SUM_ROW <= STAGES * STAGE ? rows : rows_held(rows / 2);
    }
    static constexpr int HELD = rows_held(M < 64 ? M : 64);
};

// Sums on CUDA cores: TM x TN to a thread, operands and sums of type T.
template <class T, class Shape, int TM, int TN> struct Lanes {
    using Word = T;
    using Sum = T;
    using Tile = Shape;
    static constexpr int PAIR = 1;  // elements to a word
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

    BRICK_DEVICE Lanes() {
#pragma unroll
        for (int r = 0; r < TM; ++r)
#pragma unroll
            for (int c = 0; c < TN; ++c) sum[r][c] = T(0);
    }

    template <bool, bool> BRICK_DEVICE void multiply(const T* a, const T* b) {
        a += row() * Shape::A_ROW + split() * 4;
        b += split() * 4 * Shape::B_ROW + column();
#pragma unroll
        for (int step = 0; step < Shape::K / 4 / Shape::SPLIT; ++step) {
            const int k = step * Shape::SPLIT * 4;
            Vector<T, LEFT> left[TM];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (j % LEFT == 0)
#pragma unroll
                    for (int r = 0; r < TM; ++r) left[r] = load<LEFT>(a + r * ROWS * Shape::A_ROW + k + j);
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
    static constexpr int PAIR = 4 / sizeof(T);
    static constexpr bool WARPS = true;
    static constexpr int ROWS = Shape::M / DOWN, COLUMNS = Shape::N / ACROSS, MI = ROWS / 16, NI = COLUMNS / 8;
    static_assert(DOWN * ACROSS * Shape::SPLIT * 32 == Shape::THREADS && ROWS % 16 == 0 && COLUMNS % 8 == 0);
    static_assert(Shape::K % (8 * Shape::SPLIT) == 0);

    float sum[MI][NI][4];

    static BRICK_DEVICE int split() { return warp() / (DOWN * ACROSS); }
    static BRICK_DEVICE int row() { return warp() % (DOWN * ACROSS) / ACROSS * ROWS; }
    static BRICK_DEVICE int column() { return warp() % ACROSS * COLUMNS; }

    BRICK_DEVICE Warps() {
#pragma unroll
        for (int i = 0; i < MI * NI * 4; ++i) sum[i / 4 / NI][i / 4 % NI][i % 4] = 0;
    }

    // ALONG: B has a row of words per column; ROUNDED: they are as the tensor cores take them.
    template <bool ALONG, bool ROUNDED> BRICK_DEVICE void multiply(const unsigned* a, const unsigned* b) {
        warp_sync();  // filling the next stage may have made the lanes diverge
        const int k = split() * 8;
        a += (row() + lane() % 16) * Shape::A_ROW + lane() / 16 * 4 + k;
        if (ALONG) b += (column() + lane() / 16 % NI * 8 + lane() % 8) * Shape::A_ROW + lane() / 8 % 2 * 4 + k;
        else b += (k + lane() % 4) * Shape::B_ROW + column() + lane() / 4;
#pragma unroll
        for (int step = 0; step < Shape::K / 8 / Shape::SPLIT; ++step) {
            const int k = step * Shape::SPLIT * 8;
            unsigned left[MI][4], right[NI + NI % 2][2];
#pragma unroll
            for (int i = 0; i < MI; ++i) {
                load_matrices(left[i], a + i * 16 * Shape::A_ROW + k);
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

// The columns of a product with PARTS > 1 are runs of this many columns of each part in turn.
constexpr int RUN = 8;

// The table of a tile's rows has four words per row: its index in the output; the first is -1 where there is no row.
constexpr int ROW_WORDS = 4;

// How a thread fills the rows of A: V elements together, of rows `first()`, `first()` + STEP, …
template <class P, class Core> struct RowFill {
    using T = typename P::T;
    using Shape = typename Core::Tile;
    static constexpr int V = P::A_VECTOR, PER_ROW = Shape::K * Core::PAIR / V, STEP = Shape::THREADS / PER_ROW;
    static constexpr int COUNT = (Shape::M + STEP - 1) / STEP, PITCH = Shape::A_ROW * Core::PAIR;
    static constexpr bool KEPT = V > 1;  // else the rows are too many to keep where each begins

    const P& p;
    const int* rows;
    typename P::Row kept[KEPT ? COUNT : 1];

    static BRICK_DEVICE int first() { return thread() / PER_ROW; }
    static BRICK_DEVICE int part() { return thread() % PER_ROW * V; }
    static BRICK_DEVICE bool has(int i) { return Shape::M % STEP == 0 || first() + i * STEP < Shape::M; }

    BRICK_DEVICE RowFill(const P& p, const int* rows) : p(p), rows(rows) {
        if constexpr (KEPT)
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (has(i)) kept[i] = row(i);
    }
    BRICK_DEVICE typename P::Row row(int i) const {
        return p.row(load<ROW_WORDS>(rows + (first() + i * STEP) * ROW_WORDS).v);
    }

    // K words of the depth from element `k` on, into a buffer.
    BRICK_DEVICE void fill(int k, typename Core::Word* a) const {
        const auto shift = p.template shift<Shape::K * Core::PAIR>(k + part());
        T* const to = reinterpret_cast<T*>(a) + first() * PITCH + part();
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (has(i))
                    copy_async16(to + i * STEP * PITCH, p.from(kept[i], shift), p.inside(kept[i], shift) ? 16 : 0);
        } else {
            T v[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                if (!has(i)) break;
                const auto at = row(i);
                v[i] = p.inside(at, shift) ? *global(p.from(at, shift)) : T(0);
            }
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (has(i)) to[i * STEP * PITCH] = v[i];
        }
    }
};

// How a thread fills the columns of B.
template <class P, class Core> struct ColumnFill {
    using T = typename P::T;
    using Word = typename Core::Word;
    using Shape = typename Core::Tile;
    static constexpr bool ALONG = Core::WARPS && (P::PACKED || P::B_DOWN);
    // Pieces of 16 bytes, ACROSS of them beside each other: words of neighbouring columns, or pieces of the depth.
    static constexpr int THICK = ALONG ? 1 : 16 / sizeof(Word), DEEP = ALONG ? 16 / sizeof(T) : Core::PAIR;
    static constexpr int WIDE = Shape::N / THICK, HIGH = Shape::K * Core::PAIR / DEEP, ALL = WIDE * HIGH;
    static constexpr int ACROSS = P::B_DOWN ? HIGH : WIDE;
    static constexpr int NEXT = Shape::THREADS / ACROSS, COUNT = (ALL + Shape::THREADS - 1) / Shape::THREADS;
    static constexpr int NEXT_N = P::B_DOWN ? NEXT * THICK : 0, NEXT_K = P::B_DOWN ? 0 : NEXT * DEEP;

    const P& p;
    int n;          // of the tile, in columns of the product
    const T* piece; // the thread's first one

    // The word of a buffer that has element `k` of column n.
    static constexpr BRICK_DEVICE int place(int n, int k) {
        return ALONG ? n * Shape::A_ROW + k / Core::PAIR : k / Core::PAIR * Shape::B_ROW + n;
    }
    static BRICK_DEVICE int column() { return (P::B_DOWN ? thread() / ACROSS : thread() % ACROSS) * THICK; }
    static BRICK_DEVICE int depth() { return (P::B_DOWN ? thread() % ACROSS : thread() / ACROSS) * DEEP; }

    BRICK_DEVICE ColumnFill(const P& p, int n) : p(p), n(n) {
        if constexpr (P::B_VECTOR) piece = p.column(n + column()) + depth() * P::DOWN;
    }

    // K words of the depth from element `k` on, into a buffer.
    BRICK_DEVICE void fill(int k, Word* b) const {
        if constexpr (P::B_VECTOR) pieces(k, b);
        else if constexpr (P::B_PAIRS) pairs(k, b);
        else elements(k, b);
    }

    BRICK_DEVICE void pieces(int k, Word* b) const {
        static_assert(Shape::THREADS % ACROSS == 0);
        b += place(column(), depth());
        const T* const from = piece + k * P::DOWN;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (ALL % Shape::THREADS && thread() + i * Shape::THREADS >= ALL) break;
            const bool deep = P::template fits<Shape::K * Core::PAIR>() || k + depth() + i * NEXT_K < p.deep();
            const bool in = deep && n + column() + i * NEXT_N < P::STORED;
            const T* const next = from + i * (NEXT_N * P::BESIDE + NEXT_K * P::DOWN);
            copy_async16(b + i * place(NEXT_N, NEXT_K), next, in ? 16 : 0);
        }
    }

    BRICK_DEVICE void pairs(int k, Word* b) const {
        constexpr int V = 4, PER_ROW = Shape::N / V;
#pragma unroll 1
        for (int j = thread(); j < PER_ROW * Shape::K; j += Shape::THREADS) {
            const int row = j / PER_ROW, column = j % PER_ROW * V;
            const T *even = p.b(k + row * 2, n + column), *odd = p.b(k + row * 2 + 1, n + column);
            const Vector<T, V> zero{}, low = even ? load<V>(even) : zero, high = odd ? load<V>(odd) : zero;
            Vector<T, 2 * V> mixed;
#pragma unroll
            for (int v = 0; v < 2 * V; ++v) mixed.v[v] = v % 2 ? high.v[v / 2] : low.v[v / 2];
            store(reinterpret_cast<T*>(b + row * Shape::B_ROW + column), mixed);
        }
    }

    BRICK_DEVICE void elements(int k, Word* b) const {
        constexpr int DEPTH = Shape::K * Core::PAIR;
#pragma unroll 2
        for (int j = thread(); j < Shape::N * DEPTH; j += Shape::THREADS) {
            const int row = P::B_DOWN ? j % DEPTH : j / Shape::N, column = P::B_DOWN ? j / DEPTH : j % Shape::N;
            const T* from = p.b(k + row, n + column);
            reinterpret_cast<T*>(b + place(column, row))[row % Core::PAIR] = from ? *global(from) : T(0);
        }
    }
};

// Brings the sums of a tile through shared memory to the output: neighbouring threads finish neighbouring columns.
template <class P, class Core>
BRICK_DEVICE void finish_tile(const P& p, const Core& core, const int* rows, int n, typename Core::Sum* sums) {
    using Shape = typename Core::Tile;
    using Sum = typename Core::Sum;
    constexpr int W = P::WIDTH, PARTS = P::PARTS, ACROSS = Shape::N / PARTS / W;
    constexpr int TOGETHER = W * sizeof(Sum) <= 16 ? W : 16 / sizeof(Sum);
    static_assert(RUN % W == 0 && Shape::N % (RUN * PARTS) == 0);
    for (int first = 0; first < Shape::M; first += Shape::HELD) {
        sync();
        core.put(sums, first);
        sync();
#pragma unroll 1
        for (int i = thread(); i < Shape::HELD * ACROSS; i += Shape::THREADS) {
            const int r = P::ROWS_INNER ? i % Shape::HELD : i / ACROSS;
            const int c = (P::ROWS_INNER ? i / Shape::HELD : i % ACROSS) * W;
            const auto row = load<ROW_WORDS>(rows + (first + r) * ROW_WORDS);
            if (row.v[0] < 0 || n + c >= p.end() || n + c + W <= p.begin()) continue;
            Sum total[PARTS * W];
#pragma unroll
            for (int w = 0; w < PARTS * W; w += TOGETHER) {
                const int at = r * Shape::SUM_ROW + (c / RUN * PARTS + w / W) * RUN + c % RUN + w % W;
#pragma unroll
                for (int split = 0; split < Shape::SPLIT; ++split) {
                    const auto part = load<TOGETHER>(sums + at + split * Shape::HELD * Shape::SUM_ROW);
#pragma unroll
                    for (int v = 0; v < TOGETHER; ++v) total[w + v] = split ? total[w + v] + part.v[v] : part.v[v];
                }
            }
            const int a = p.begin() > n + c ? p.begin() - n - c : 0;
            const int b = p.end() < n + c + W ? p.end() - n - c : W;
            p.finish(row.v, n + c, a, b, total);
        }
    }
}

// One tile: rows [m, m + M) of the problem, columns [n, n + N / PARTS) of the output.
template <class P, class Core> BRICK_DEVICE void product_tile(const P& p, int m, int n, char* shared) {
    using Shape = typename Core::Tile;
    using Word = typename Core::Word;
    int* const rows = reinterpret_cast<int*>(shared);
    Word* const stages = reinterpret_cast<Word*>(shared + Shape::M * ROW_WORDS * sizeof(int));
    sync();
#pragma unroll 1  // at most once, mostly: code is short instead
    for (int r = thread(); r < Shape::M; r += Shape::THREADS) {
        Vector<int, ROW_WORDS> row{-1, 0, 0, 0};
        if (m + r < p.rows) p.locate(m + r, row.v);
        store(rows + r * ROW_WORDS, row);
    }
    sync();
    using Columns = ColumnFill<P, Core>;
    const RowFill<P, Core> left(p, rows);
    const Columns right(p, n * P::PARTS);
    Core core;
    int k = p.template next<Shape::K * Core::PAIR>(0), waiting = 0, to = 0;  // buffers filled, the next to fill
    const auto fill = [&] {
        if (k < p.depth) {
            Word* const stage = stages + to * Shape::STAGE;
            left.fill(k, stage);
            right.fill(k, stage + Shape::A_WORDS);
            ++waiting;
            to = to + 1 == Shape::STAGES ? 0 : to + 1;
            k = p.template next<Shape::K * Core::PAIR>(k + Shape::K * Core::PAIR);
        }
        copy_commit();
    };
#pragma unroll 1  // else registers are spilled
    for (int s = 0; s < Shape::STAGES - 1; ++s) fill();
    while (waiting) {
        copy_wait<Shape::STAGES - 2>();
        sync();
        fill();
        const Word* const stage = stages + (to >= waiting ? to - waiting : to - waiting + Shape::STAGES) * Shape::STAGE;
        core.template multiply<Columns::ALONG, P::PACKED>(stage, stage + Shape::A_WORDS);
        --waiting;
    }
    copy_wait<0>();
    finish_tile<P, Core>(p, core, rows, n, reinterpret_cast<typename Core::Sum*>(stages));
}

// All of a problem. `P` has
//   T, A_VECTOR (elements of A that lie together and are copied at once: 16 bytes, or 1), PACKED (whether B lies as
//   kernels pack it), B_VECTOR (whether 16 bytes of neighbouring words of B lie together, and are copied at once),
//   B_PAIRS (of halves: whether 16 bytes of a row lie together), B_DOWN (whether neighbours along the depth of B lie
//   closer together than columns), WIDTH (columns of the output finished together),
//   PARTS (columns of the product for each of the output, see RUN),
//   ROWS_INNER (whether the output's rows lie closer together than its columns),
//   rows, depth (elements, whole words), begin() and end() (the columns that are wanted),
//   locate(m, row): the index of row m, four words, the first not negative;
//   Row row(index): what a row adds to where elements of A lie, shift<N>(k): what element k of the depth adds, which is
//   in a buffer of N; fits<N>(): whether all of those are of the depth;
//   inside(row, shift): whether there is one, which is zero else, from(row, shift): where;
//   b(k, n): where B (k, n) lies, null where it is zero; for B_VECTOR column(n): where the first piece of column n is,
//   DOWN and BESIDE: from there to the next of the depth, and of columns that are not packed; STORED columns and
//   deep() elements of the depth are there;
//   next<N>(k): the first depth from k on that is to be summed, in buffers of N;
//   finish(row, n, a, b, sums): stores columns [a, b) of the WIDTH that follow n.
template <class P, class Core> BRICK_DEVICE void product(const P& p, char* shared) {
    for (int n = p.begin() / RUN * RUN; n < p.end(); n += Core::Tile::N / P::PARTS)
        for (int m = 0; m < p.rows; m += Core::Tile::M) product_tile<P, Core>(p, m, n, shared);
}

}  // namespace brick
