// Convolutions whose outputs sum few products: each thread sums V output channels of R neighbours along a row.
#pragma once
#include "vectors.cuh"

namespace brick {

// `S` is printed per kernel:
//   T, A (the type of sums), D (spatial dimensions), CHANNELS (input channels of a group), COLUMNS (of the product,
//   of a group), PARTS of the product, OUT (output channels), OUTPUTS (padded as the packed weights are), PACKED, WIDTH
//   (V), R, SLIDING (whether inputs of a row are loaded once), ROWS_INNER (whether pixels lie closer together than
//   channels), X_ALIGNED (whether V channels of the input can be loaded at once),
//   kernel(d), stride(d), dilation(d), pad(d), extent(d), checked(d), x(d), w(d) and finish as for products (igemm.cuh).
template <class S> struct Depthwise {
    using T = typename S::T;
    using A = typename S::A;
    static constexpr int D = S::D, V = S::WIDTH, R = S::R, LAST = D - 1;
    static constexpr int KERNEL = S::kernel(LAST), STRIDE = S::stride(LAST), DILATION = S::dilation(LAST);
    static constexpr bool VERY = S::CHANNELS == 1 && S::COLUMNS == 1;  // every channel is a group
    static constexpr BRICK_DEVICE int outer_taps() {
        int n = 1;
        for (int d = 0; d < LAST; ++d) n *= S::kernel(d);
        return n;
    }

    char* const* at;
    int channel, a, b;  // the first of V channels; [a, b) of them are wanted
    int index[2 + D];  // of the first output
    A sum[R][S::PARTS][V];

    // V values of the input at column i of a row: those of V channels, or V times that of the group's channel.
    // WHOLE: all V channels are wanted.
    template <bool WHOLE> BRICK_DEVICE void input(const T* row, int i, A (&v)[V]) const {
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] = A(0);
        if (S::checked(LAST) && (unsigned)i >= (unsigned)S::extent(LAST)) return;
        const T* from = row + i * S::x(1 + D);
        if constexpr (VERY)
            fetch<V, (int)S::x(1), S::X_ALIGNED>(from, WHOLE ? 0 : a, WHOLE ? V : b, v);
        else
            fetch<V, 0, false>(from, 0, V, v);
    }

    template <bool WHOLE> BRICK_DEVICE void weights(int part, int tap, int c, A (&v)[V]) const {
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] = A(0);
        if constexpr (S::PACKED) {  // as sums are, and as many as whole vectors
            const A* const w = reinterpret_cast<const A*>(at[2]);
            fetch<V, 1, true>(w + ((tap * S::CHANNELS + c) * S::PARTS + part) * S::OUTPUTS + channel, 0, V, v);
        } else {
            const T* w = reinterpret_cast<const T*>(at[2]);
            w += (part * S::OUT + channel) * S::w(0) + c * S::w(1);
#pragma unroll
            for (int d = LAST; d >= 0; --d) {
                w += tap % S::kernel(d) * S::w(2 + d);
                tap /= S::kernel(d);
            }
            fetch<V, (int)S::w(0), false>(w, WHOLE ? 0 : a, WHOLE ? V : b, v);
        }
    }

    BRICK_DEVICE void add(int r, int part, const A (&x)[V], const A (&w)[V]) {
#pragma unroll
        for (int k = 0; k < V; ++k) sum[r][part][k] += x[k] * w[k];
    }

    // One row of the input under one row of taps, which begin at `tap`.
    template <bool WHOLE> BRICK_DEVICE void sweep(const T* row, int part, int tap, int c) {
        const int first = index[1 + D] * STRIDE - S::pad(LAST);
        if constexpr (S::SLIDING && WHOLE) {
            A w[KERNEL][V];
#pragma unroll
            for (int k = 0; k < KERNEL; ++k) weights<WHOLE>(part, tap + k, c, w[k]);
#pragma unroll
            for (int j = 0; j < (R - 1) * STRIDE + (KERNEL - 1) * DILATION + 1; ++j) {
                bool used = false;
#pragma unroll
                for (int k = 0; k < KERNEL; ++k) used |= meets(j - k * DILATION);
                if (!used) continue;
                A x[V];
                input<WHOLE>(row, first + j, x);
#pragma unroll
                for (int k = 0; k < KERNEL; ++k)
                    if (meets(j - k * DILATION)) add((j - k * DILATION) / STRIDE, part, x, w[k]);
            }
        } else {
#pragma unroll(WHOLE ? 4 : 1)
            for (int k = 0; k < KERNEL; ++k) {
                A w[V];
                weights<WHOLE>(part, tap + k, c, w);
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    A x[V];
                    input<WHOLE>(row, first + r * STRIDE + k * DILATION, x);
                    add(r, part, x, w);
                }
            }
        }
    }

    // Whether a shift from the first input is that of one of the R outputs.
    static constexpr BRICK_DEVICE bool meets(int shift) {
        return shift >= 0 && shift % STRIDE == 0 && shift / STRIDE < R;
    }

    // Computes the sums, and finishes the outputs.
    template <bool WHOLE> BRICK_DEVICE void run(const Step& s) {
#pragma unroll
        for (int i = 0; i < R * S::PARTS * V; ++i) sum[i / V / S::PARTS][i / V % S::PARTS][i % V] = A(0);
#pragma unroll
        for (int part = 0; part < S::PARTS; ++part) sum_part<WHOLE>(part);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (index[1 + D] < s.hi[1 + D]) S::finish(at, index, WHOLE ? 0 : a, WHOLE ? V : b, sum[r][0]);
            ++index[1 + D];
        }
    }

    template <bool WHOLE> BRICK_DEVICE void sum_part(int part) {
        const T* image = reinterpret_cast<const T*>(at[1]) + index[0] * S::x(0);
        image += (long long)((part * S::OUT + channel) / S::COLUMNS) * S::CHANNELS * S::x(1);
#pragma unroll(R * V > 16 ? 1 : KERNEL)  // as registers allow
        for (int t = 0; t < outer_taps(); ++t) {
            const T* row = image;
            int rest = t;
            bool inside = true;
#pragma unroll
            for (int d = LAST - 1; d >= 0; --d) {
                const int i = index[2 + d] * S::stride(d) - S::pad(d) + rest % S::kernel(d) * S::dilation(d);
                rest /= S::kernel(d);
                inside &= !S::checked(d) || (unsigned)i < (unsigned)S::extent(d);
                row += i * S::x(2 + d);
            }
            if (!inside) continue;
            for (int c = 0; c < S::CHANNELS; ++c) sweep<WHOLE>(row + c * S::x(1), part, t * KERNEL, c);
        }
    }
};

template <class S> BRICK_DEVICE void depthwise(const Step& s, char* const* at) {
    using Body = Depthwise<S>;
    constexpr int D = S::D, V = Body::V, R = Body::R;
    const int lead = s.lo[1] / V * V, vectors = (s.hi[1] - lead + V - 1) / V;
    const int strips = (s.hi[1 + D] - s.lo[1 + D] + R - 1) / R;
    int pixels = strips * (s.hi[0] - s.lo[0]);
#pragma unroll
    for (int d = 0; d < D - 1; ++d) pixels *= s.hi[2 + d] - s.lo[2 + d];
    if (s.hi[1] <= s.lo[1]) return;
    for (int item = thread(); item < vectors * pixels; item += threads()) {
        Body body;
        body.at = at;
        int rest = S::ROWS_INNER ? item % pixels : item / vectors;
        body.channel = lead + (S::ROWS_INNER ? item / pixels : item % vectors) * V;
        body.a = s.lo[1] > body.channel ? s.lo[1] - body.channel : 0;
        body.b = s.hi[1] < body.channel + V ? s.hi[1] - body.channel : V;
        body.index[1] = body.channel;
        body.index[1 + D] = s.lo[1 + D] + rest % strips * R;
        rest /= strips;
#pragma unroll
        for (int d = D - 2; d >= 0; --d) {
            const int extent = s.hi[2 + d] - s.lo[2 + d];
            body.index[2 + d] = s.lo[2 + d] + rest % extent;
            rest /= extent;
        }
        body.index[0] = s.lo[0] + rest;
        if (body.a == 0 && body.b == V) body.template run<true>(s);
        else body.template run<false>(s);
    }
}

}  // namespace brick
