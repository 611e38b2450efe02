// How the factors of a tile come to be in shared memory.
#pragma once
#include "cores.cuh"

namespace brick {

// The columns of a product with PARTS > 1 are runs of this many columns of each part in turn.
constexpr int RUN = 8;

// The table of a tile's rows has four words per row: its index in the output; the first is -1 where there is no row.
constexpr int ROW_WORDS = 4;

// The rows of A that a thread multiplies, in a buffer.
template <class Core> struct BufferedRows {
    using Word = typename Core::Word;
    const Word* at;
    BRICK_DEVICE BufferedRows(const Word* buffer)
        : at(buffer + Core::first_row() * Core::Tile::A_ROW + Core::first_word()) {}
    BRICK_DEVICE const Word* row(int i) const { return at + i * Core::APART * Core::Tile::A_ROW; }
};

// How a thread fills the rows of A: V elements together, of rows `first()`, `first()` + STEP, …
template <class P, class Core> struct RowFill {
    using T = typename P::T;
    using Shape = typename Core::Tile;
    static constexpr int V = P::A_VECTOR, PER_ROW = Shape::K * Core::PER_WORD / V, STEP = Shape::THREADS / PER_ROW;
    static constexpr int COUNT = (Shape::M + STEP - 1) / STEP, PITCH = Shape::A_ROW * Core::PER_WORD;
    static constexpr bool KEPT = V > 1;  // else the rows are too many to keep where each begins

    const P& p;
    const int* rows;
    typename P::Row kept[KEPT ? COUNT : 1];

    static BRICK_DEVICE int first() { return thread() / PER_ROW; }
    static BRICK_DEVICE int part() { return thread() % PER_ROW * V; }
    static BRICK_DEVICE bool has(int i) { return Shape::M % STEP == 0 || first() + i * STEP < Shape::M; }

    BRICK_DEVICE RowFill(const P& p, const int* rows, const typename Core::Word*) : p(p), rows(rows) {
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
        const auto shift = p.template shift<Shape::K * Core::PER_WORD>(k + part());
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
    BRICK_DEVICE BufferedRows<Core> at(int, const typename Core::Word* buffer) const { return buffer; }
};

// In its place where A lies in shared memory: each row has the elements of a buffer one after the other.
template <class P, class Core> struct RowsInPlace {
    using Word = typename Core::Word;
    static constexpr int COUNT = Core::LOADED, DEPTH = Core::Tile::K * Core::PER_WORD;
    static_assert(P::A_VECTOR > 1 && P::template together<DEPTH>());

    const P& p;
    const Word* zeros;
    typename P::Row kept[COUNT];

    BRICK_DEVICE RowsInPlace(const P& p, const int* rows, const Word* zeros) : p(p), zeros(zeros) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            kept[i] = p.row(load<ROW_WORDS>(rows + (Core::first_row() + i * Core::APART) * ROW_WORDS).v);
    }
    BRICK_DEVICE void fill(int, Word*) const {}

    struct Rows {
        const Word* at[COUNT];
        BRICK_DEVICE const Word* row(int i) const { return in_shared(at[i]); }
    };
    // Those of the buffer from element k of the depth on.
    BRICK_DEVICE Rows at(int k, const Word*) const {
        const auto shift = p.template shift<DEPTH>(k);
        Rows found;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const Word* const from = reinterpret_cast<const Word*>(p.from(kept[i], shift));
            found.at[i] = (p.inside(kept[i], shift) ? from : zeros) + Core::first_word();
        }
        return found;
    }
};

template <bool BUFFERED, class P, class Core> struct RowsOf {
    using Type = RowFill<P, Core>;
};
template <class P, class Core> struct RowsOf<false, P, Core> {
    using Type = RowsInPlace<P, Core>;
};

// How a thread fills the columns of B.
template <class P, class Core> struct ColumnFill {
    using T = typename P::T;
    using Word = typename Core::Word;
    using Shape = typename Core::Tile;
    static constexpr bool ALONG = Core::WARPS && (P::PACKED || P::B_DOWN);
    // Pieces of 16 bytes, ACROSS of them beside each other: words of neighbouring columns, or pieces of the depth.
    static constexpr int THICK = ALONG ? 1 : 16 / sizeof(Word), DEEP = ALONG ? 16 / sizeof(T) : Core::PER_WORD;
    static constexpr int WIDE = Shape::N / THICK, HIGH = Shape::K * Core::PER_WORD / DEEP, ALL = WIDE * HIGH;
    static constexpr int ACROSS = P::B_DOWN ? HIGH : WIDE;
    static constexpr int NEXT = Shape::THREADS / ACROSS, COUNT = (ALL + Shape::THREADS - 1) / Shape::THREADS;
    static constexpr int NEXT_N = P::B_DOWN ? NEXT * THICK : 0, NEXT_K = P::B_DOWN ? 0 : NEXT * DEEP;

    const P& p;
    int n;          // of the tile, in columns of the product
    const T* piece; // the thread's first one

    // The word of a buffer that has element `k` of column n.
    static constexpr BRICK_DEVICE int place(int n, int k) {
        return ALONG ? n * Shape::A_ROW + k / Core::PER_WORD : k / Core::PER_WORD * Shape::B_ROW + n;
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
            const bool deep = P::template fits<Shape::K * Core::PER_WORD>() || k + depth() + i * NEXT_K < p.deep();
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
        constexpr int DEPTH = Shape::K * Core::PER_WORD;
#pragma unroll 2
        for (int j = thread(); j < Shape::N * DEPTH; j += Shape::THREADS) {
            const int row = P::B_DOWN ? j % DEPTH : j / Shape::N, column = P::B_DOWN ? j / DEPTH : j % Shape::N;
            const T* from = p.b(k + row, n + column);
            reinterpret_cast<T*>(b + place(column, row))[row % Core::PER_WORD] = from ? *global(from) : T(0);
        }
    }
};

}  // namespace brick
