// Matrix products of a block: tiles of outputs in registers, operands streamed through shared memory.
#pragma once
#include "factors.cuh"

namespace brick {

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
    Word* const zeros = reinterpret_cast<Word*>(shared + Shape::M * ROW_WORDS * sizeof(int));
    Word* const buffers = zeros + Shape::ZEROS;
    sync();
    if (thread() < Shape::ZEROS) zeros[thread()] = 0;
#pragma unroll 1  // at most once, mostly: code is short instead
    for (int r = thread(); r < Shape::M; r += Shape::THREADS) {
        Vector<int, ROW_WORDS> row{-1, 0, 0, 0};
        if (m + r < p.rows) p.locate(m + r, row.v);
        store(rows + r * ROW_WORDS, row);
    }
    sync();
    using Columns = ColumnFill<P, Core>;
    const typename RowsOf<Shape::BUFFERED, P, Core>::Type left(p, rows, zeros);
    const Columns right(p, n * P::PARTS);
    Core core;
    int k = p.template next<Shape::K * Core::PER_WORD>(0), waiting = 0, to = 0;  // buffers filled, the next to fill
    int multiplied = k;  // the depth of the next buffer to multiply
    const auto fill = [&] {
        if (k < p.depth) {
            Word* const buffer = buffers + to * Shape::BUFFER_WORDS;
            left.fill(k, buffer);
            right.fill(k, buffer + Shape::A_WORDS);
            ++waiting;
            to = to + 1 == Shape::BUFFERS ? 0 : to + 1;
            k = p.template next<Shape::K * Core::PER_WORD>(k + Shape::K * Core::PER_WORD);
        }
        copy_commit();
    };
#pragma unroll 1  // else registers are spilled
    for (int s = 0; s < Shape::BUFFERS - 1; ++s) fill();
    while (waiting) {
        copy_wait<Shape::BUFFERS - 2>();
        sync();
        fill();
        const int from = to >= waiting ? to - waiting : to - waiting + Shape::BUFFERS;
        const Word* const buffer = buffers + from * Shape::BUFFER_WORDS;
        core.template multiply<Columns::ALONG, P::PACKED>(left.at(multiplied, buffer), buffer + Shape::A_WORDS);
        if constexpr (!Shape::BUFFERED)
            multiplied = p.template next<Shape::K * Core::PER_WORD>(multiplied + Shape::K * Core::PER_WORD);
        --waiting;
    }
    copy_wait<0>();
    finish_tile<P, Core>(p, core, rows, n, reinterpret_cast<typename Core::Sum*>(buffers));
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
//   together<N>(): whether that of element k, a multiple of N, tells of N elements that follow one another;
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
