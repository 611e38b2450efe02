// Reductions over rows, and Maps of what they give. A row is what one element of a reduction combines; its elements
// come in COUNT vectors. Either a vector lies along the row, which LANES lanes of a warp or the whole block share; or
// it lies across V rows and has one element of each: then neighbouring threads have neighbouring rows, and where rows
// are fewer than threads, several threads share each.
#pragma once
#include "combine.cuh"
#include "vectors.cuh"

namespace brick {

template <int J> struct Number {};

// The base of all traits K: the current rows. Of the V rows across a vector, those in [a, b) are in the box.
struct RowState {
    const Step* step;
    bool whole;  // whether the box has all of each row
    int a, b;
};

// K: ACROSS, V             whether vectors lie across rows; elements of a vector
//    COUNT, RUN            vectors of a row; elements of a run (not ACROSS): vectors do not cross its end
//    RANK, KEPT, axis(k)   dimensions of the output; the k-th of those that number rows; the last is the one across
//    STEPS, LANES          reductions; lanes to a row (not ACROSS), or 0 if the block shares it
//    REGISTERS, CACHED     vectors of a row that a lane keeps in registers; whether the block keeps them in shared memory
//    PER_ROW               whether the output has an element per row, not one per element
//    Held                  what is kept of a vector
//    seek(at, c)           makes the row with indices c, along the dimensions that number rows, the current one
//    fetch(i, a, b, held)  loads what is kept of elements [a, b) of vector i
//    combine(Number<J>)    what step J combines with
//    terms(Number<J>, held, i, a, b, t)   what it combines of vector i
//    finish(Number<J>, w, value)          takes its result for row w of V, or for the row (w = 0)
//    write(held, i, a, b) or write(a, b)  stores elements of vector i, or results of rows
template <class K> struct Rows {
    static constexpr int V = K::V, WIDTH = K::ACROSS ? V : 1;
    static constexpr int CHUNK = 16;    // vectors whose sum is not compensated
    static constexpr int TOGETHER = 4;  // vectors that a thread loads before it uses the first
    using Held = typename K::Held;
    template <int J> using Combine = decltype(K::combine(Number<J>{}));
    template <int J> using Type = typename Combine<J>::Type;

    // ---- which rows a box has

    struct Box {
        int first[K::KEPT + 1], count[K::KEPT + 1], rows = 1;
        BRICK_DEVICE explicit Box(const Step& s) {
#pragma unroll
            for (int d = 0; d < K::RANK; ++d)
                if (s.hi[d] <= s.lo[d]) rows = 0;
#pragma unroll
            for (int k = 0; k < K::KEPT; ++k) {
                const int v = K::ACROSS && k == K::KEPT - 1 ? V : 1;
                first[k] = s.lo[K::axis(k)] / v;
                count[k] = (s.hi[K::axis(k)] + v - 1) / v - first[k];
                rows *= count[k];
            }
        }
    };

    static BRICK_DEVICE void seek(K& k, const Box& box, int row, char* const* at) {
        int c[K::KEPT + 1] = {};
        unsigned rest = row;
#pragma unroll
        for (int d = K::KEPT - 1; d > 0; --d) {
            c[d] = box.first[d] + rest % box.count[d];
            rest /= box.count[d];
        }
        if (K::KEPT > 0) c[0] = box.first[0] + rest;
        if constexpr (K::ACROSS) {
            constexpr int ACROSS_AXIS = K::axis(K::KEPT - 1);
            c[K::KEPT - 1] *= V;
            const int a = k.step->lo[ACROSS_AXIS] - c[K::KEPT - 1], b = k.step->hi[ACROSS_AXIS] - c[K::KEPT - 1];
            k.a = a > 0 ? a : 0;
            k.b = b < V ? b : V;
        }
        k.seek(at, c);
    }

    // ---- one thread's part of a row: vectors `first`, `first` + `stride`, …

    // FULL: vectors across rows are known to be in the box as a whole.
    template <bool FULL> static BRICK_DEVICE void range(const K& k, int i, int& a, int& b) {
        constexpr int VECTORS = (K::RUN + V - 1) / V;
        a = K::ACROSS && !FULL ? k.a : 0;
        b = K::ACROSS && !FULL ? k.b : V;
        if (!K::ACROSS && K::RUN % V != 0 && i % VECTORS == VECTORS - 1) b = K::RUN % V;
    }

    template <bool FULL> static BRICK_DEVICE Held fetch(const K& k, int i) {
        int a, b;
        Held held{};
        range<FULL>(k, i, a, b);
        k.fetch(i, a, b, held);
        return held;
    }

    // Combines vector i into a chunk.
    template <int J, bool FULL>
    static BRICK_DEVICE void take(const K& k, const Held& held, int i, Type<J> (&chunk)[WIDTH]) {
        using C = Combine<J>;
        int a, b;
        Type<J> t[V];
        range<FULL>(k, i, a, b);
        k.terms(Number<J>{}, held, i, a, b, t);
        if constexpr (K::ACROSS) {
#pragma unroll
            for (int v = 0; v < V; ++v) chunk[v] = C::of(chunk[v], t[v]);
        } else {
            if (K::RUN % V != 0)
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (v >= b) t[v] = C::start();
#pragma unroll
            for (int half = V / 2; half > 0; half /= 2)
#pragma unroll
                for (int v = 0; v < half; ++v) t[v] = C::of(t[v], t[v + half]);
            chunk[0] = C::of(chunk[0], t[0]);
        }
    }

    template <int J, bool FULL, class Get>
    static BRICK_DEVICE void sweep(const K& k, int first, int stride, const Get& get, Type<J> (&result)[WIDTH]) {
        Total<Combine<J>> totals[WIDTH];
        for (int from = first; from < K::COUNT; from += CHUNK * stride) {
            Type<J> chunk[WIDTH];
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) chunk[w] = Combine<J>::start();
            const int left = (K::COUNT - from + stride - 1) / stride, count = left < CHUNK ? left : CHUNK;
#pragma unroll(FULL ? TOGETHER : 1)
            for (int n = 0; n < count; ++n) take<J, FULL>(k, get(from + n * stride), from + n * stride, chunk);
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) totals[w].add(chunk[w]);
        }
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) result[w] = totals[w].result();
    }

    template <bool FULL> static BRICK_DEVICE void write(const K& k, const Held& held, int i) {
        int a, b;
        range<FULL>(k, i, a, b);
        k.write(held, i, a, b);
    }

    // Stores all of a thread's part; FAST: vectors are whole, and several are worth loading before the first is stored.
    template <bool FAST, class Get> static BRICK_DEVICE void write_sweep(const K& k, int first, int stride, const Get& get) {
        constexpr int N = FAST ? TOGETHER : 1;
        for (int from = first; from < K::COUNT; from += N * stride) {
            Held held[N];
#pragma unroll
            for (int n = 0; n < N; ++n)
                if (from + n * stride < K::COUNT) held[n] = get(from + n * stride);
#pragma unroll
            for (int n = 0; n < N; ++n)
                if (from + n * stride < K::COUNT) write<FAST>(k, held[n], from + n * stride);
        }
    }

    // ---- rows that some lanes share

    template <int J> static BRICK_DEVICE void step_by_lanes(K& k, int lane, const Held* kept) {
        if constexpr (J < K::STEPS) {
            Type<J> result[1] = {Combine<J>::start()};
            if constexpr (K::REGISTERS > 0) {
#pragma unroll
                for (int n = 0; n < K::REGISTERS; ++n)
                    if (has(lane, n)) take<J, true>(k, kept[n], lane + n * K::LANES, result);
            } else {
                sweep<J, true>(k, lane, K::LANES, [&](int i) { return fetch<true>(k, i); }, result);
            }
            k.finish(Number<J>{}, 0, over_lanes<Combine<J>, K::LANES>(result[0]));
            step_by_lanes<J + 1>(k, lane, kept);
        }
    }

    // Whether there is a vector for register n of a lane.
    static BRICK_DEVICE bool has(int lane, int n) {
        return (n + 1) * K::LANES <= K::COUNT || lane + n * K::LANES < K::COUNT;
    }

    static BRICK_DEVICE void by_lanes(const Step& s, char* const* at) {
        constexpr int ROWS = 32 / K::LANES;  // of a warp
        const Box box(s);
        const int lane = thread() % K::LANES;
        for (int base = warp() * ROWS; base < box.rows; base += warps() * ROWS) {
            const int row = base + thread() % 32 / K::LANES;
            const bool live = row < box.rows;  // lanes without a row take part in the shuffles
            K k;
            begin(k, s);
            seek(k, box, live ? row : base, at);
            Held kept[K::REGISTERS + 1];
#pragma unroll
            for (int n = 0; n < K::REGISTERS; ++n)
                if (has(lane, n)) kept[n] = fetch<true>(k, lane + n * K::LANES);
            step_by_lanes<0>(k, lane, kept);
            if (live) write_by_lanes(k, lane, kept);
        }
    }

    static BRICK_DEVICE void write_by_lanes(const K& k, int lane, const Held* kept) {
        if constexpr (K::PER_ROW) {
            if (lane == 0) k.write(0, 1);
        } else if constexpr (K::REGISTERS > 0) {
#pragma unroll
            for (int n = 0; n < K::REGISTERS; ++n)
                if (has(lane, n)) write<true>(k, kept[n], lane + n * K::LANES);
        } else {
            write_sweep<true>(k, lane, K::LANES, [&](int i) { return fetch<true>(k, i); });
        }
    }

    // ---- rows that the block shares, one after the other

    template <int J, class Get> static BRICK_DEVICE void step_by_block(K& k, const Get& get, char* shared) {
        if constexpr (J < K::STEPS) {
            Type<J> result[1];
            sweep<J, true>(k, thread(), threads(), get, result);
            k.finish(Number<J>{}, 0, over_block<Combine<J>>(result[0], shared));
            step_by_block<J + 1>(k, get, shared);
        }
    }

    template <class Get> static BRICK_DEVICE void row_by_block(K& k, const Get& get, char* shared) {
        step_by_block<0>(k, get, shared);
        if constexpr (K::PER_ROW) {
            if (thread() == 0) k.write(0, 1);
        } else {
            write_sweep<!K::CACHED>(k, thread(), threads(), get);
        }
    }

    static BRICK_DEVICE void by_block(const Step& s, char* const* at, char* shared) {
        const Box box(s);
        Held* cache = reinterpret_cast<Held*>(shared + 256);  // each thread reads what it wrote
        for (int row = 0; row < box.rows; ++row) {
            K k;
            begin(k, s);
            seek(k, box, row, at);
            if constexpr (K::CACHED) {
                for (int i = thread(); i < K::COUNT; i += threads()) cache[i] = fetch<true>(k, i);
                row_by_block(k, [&](int i) -> const Held& { return cache[i]; }, shared);
            } else {
                row_by_block(k, [&](int i) { return fetch<true>(k, i); }, shared);
            }
        }
    }

    // ---- rows across vectors

    struct Place {
        int column, columns, part, parts;
    };

    template <int J> static BRICK_DEVICE void step_across(K& k, const Place& p, char* shared) {
        if constexpr (J < K::STEPS) {
            Type<J> result[WIDTH];
            if (p.part < p.parts) {
                if (k.a == 0 && k.b == V)
                    sweep<J, true>(k, p.part, p.parts, [&](int i) { return fetch<true>(k, i); }, result);
                else sweep<J, false>(k, p.part, p.parts, [&](int i) { return fetch<false>(k, i); }, result);
            }
            over_parts<Combine<J>, WIDTH>(result, p.column, p.columns, p.part, p.parts, shared);
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) k.finish(Number<J>{}, w, result[w]);
            step_across<J + 1>(k, p, shared);
        }
    }

    static BRICK_DEVICE void across(const Step& s, char* const* at, char* shared) {
        const Box box(s);
        for (int done = 0; done < box.rows;) {
            Place p;
            p.columns = box.rows - done < threads() ? box.rows - done : threads();
            p.parts = threads() / p.columns;
            if (p.parts > (K::COUNT + 3) / 4) p.parts = K::COUNT > 0 ? (K::COUNT + 3) / 4 : 1;
            p.part = thread() / p.columns;
            p.column = thread() % p.columns;
            K k;
            begin(k, s);
            seek(k, box, done + p.column, at);
            step_across<0>(k, p, shared);
            if constexpr (K::PER_ROW) {
                if (p.part == 0) k.write(k.a, k.b);
            } else if (p.part < p.parts) {
                if (k.a == 0 && k.b == V) write_sweep<true>(k, p.part, p.parts, [&](int i) { return fetch<true>(k, i); });
                else write_sweep<false>(k, p.part, p.parts, [&](int i) { return fetch<false>(k, i); });
            }
            done += p.columns;
        }
    }

    static BRICK_DEVICE void begin(K& k, const Step& s) {
        k.step = &s;
        k.whole = k.has_whole_rows(s);
    }

    static BRICK_DEVICE void box(const Step& s, char* const* at, char* shared) {
        if constexpr (K::ACROSS) across(s, at, shared);
        else if constexpr (K::LANES > 0) by_lanes(s, at);
        else by_block(s, at, shared);
    }
};

}  // namespace brick
