// Convolutions as matrix products (see `product`): rows are pixels of a box of the output, columns the output channels
// of a group, the depth runs over taps and the input channels of the group, channels innermost.
#pragma once
#include "tile.cuh"

namespace brick {

// A tap and a channel of the input; `channel` is -1 beyond the depth.
struct Tap {
    int channel, at[3];
};

// What convolutions share. `S` is printed per kernel:
//   T, Out, D (spatial dimensions), CHANNELS and COLUMNS (input and output channels of a group), PADDED_CHANNELS (up to
//   whole words), PADDED_COLUMNS (those of the packed weights), PARTS, OUT (output channels), PACKED, A_VECTOR, B_VECTOR, WIDTH, ROWS_INNER,
//   kernel(d), stride(d), dilation(d), pad(d), extent(d) (of the input), checked(d) (whether taps may read padding),
//   x(d), w(d): strides of input and weights, in elements; Offset: a type that holds offsets inside one image,
//   finish(at, index, a, b, sums): columns [a, b) of WIDTH.
template <class S> struct ConvBase {
    using T = typename S::T;
    static constexpr int A_VECTOR = S::A_VECTOR, WIDTH = S::WIDTH, PARTS = S::PARTS, D = S::D;
    static constexpr bool B_VECTOR = S::B_VECTOR, B_PAIRS = false, B_DOWN = false, ROWS_INNER = S::ROWS_INNER;

    const Step& s;
    char* const* at;
    int rows, depth, begin, end, group;

    BRICK_DEVICE ConvBase(const Step& s, char* const* at) : s(s), at(at) {}

    BRICK_DEVICE const T* nowhere(int i) const { return global(reinterpret_cast<const T*>(at[i])); }

    // Channels of group `g` inside the box become the columns.
    BRICK_DEVICE void choose_group(int g) {
        group = g;
        begin = s.lo[1] > g * S::COLUMNS ? s.lo[1] - g * S::COLUMNS : 0;
        end = s.hi[1] < (g + 1) * S::COLUMNS ? s.hi[1] - g * S::COLUMNS : S::COLUMNS;
    }

    template <class Sum> BRICK_DEVICE void finish(const int* row, int n, int a, int b, const Sum* sums) const {
        int index[2 + D];
        index[0] = row[0];
        index[1] = group * S::COLUMNS + n;
#pragma unroll
        for (int d = 0; d < D; ++d) index[2 + d] = row[1 + d];
        S::finish(at, index, a, b, sums);
    }

    // Element k of column n of the packed weights, whose rows of words begin at `k`; k is that of the whole group.
    BRICK_DEVICE const T* packed(int k, int n, int group_depth) const {
        constexpr int PAIR = sizeof(T) == 2 ? 2 : 1;
        const long long row = (long long)group * (group_depth / PAIR) + k / PAIR;
        return global(reinterpret_cast<const T*>(at[2])) + (row * S::PADDED_COLUMNS + n) * PAIR + k % PAIR;
    }

    // The input at these spatial coordinates, null outside of it.
    BRICK_DEVICE const T* input(int image, const int (&i)[D], int channel) const {
        typename S::Offset offset = (typename S::Offset)(group * S::CHANNELS + channel) * (typename S::Offset)S::x(1);
#pragma unroll
        for (int d = 0; d < D; ++d) {
            if (S::checked(d) && (unsigned)i[d] >= (unsigned)S::extent(d)) return nullptr;
            offset += (typename S::Offset)i[d] * (typename S::Offset)S::x(2 + d);
        }
        return global(reinterpret_cast<const T*>(at[1])) + image * S::x(0) + offset;
    }
};

template <class S> struct ConvProblem : ConvBase<S> {
    using Base = ConvBase<S>;
    using typename Base::T;
    using Base::D;
    static constexpr BRICK_DEVICE int taps() {
        int n = 1;
        for (int d = 0; d < D; ++d) n *= S::kernel(d);
        return n;
    }
    static constexpr int DEPTH = taps() * S::PADDED_CHANNELS;

    BRICK_DEVICE ConvProblem(const Step& s, char* const* at) : Base(s, at) {
        this->depth = DEPTH;
        this->rows = s.hi[0] - s.lo[0];
#pragma unroll
        for (int d = 0; d < D; ++d) this->rows *= s.hi[2 + d] - s.lo[2 + d];
    }

    BRICK_DEVICE void locate(int m, int* row) const {
#pragma unroll
        for (int d = D - 1; d >= 0; --d) {
            const int extent = this->s.hi[2 + d] - this->s.lo[2 + d], rest = m / extent;
            row[1 + d] = this->s.lo[2 + d] + m - rest * extent;
            m = rest;
        }
        row[0] = this->s.lo[0] + m;
    }

    BRICK_DEVICE Tap tap(int k) const {
        Tap t{-1, {0, 0, 0}};
        if (k >= DEPTH) return t;
        int rest = k / S::PADDED_CHANNELS;
        t.channel = k % S::PADDED_CHANNELS;
        if (t.channel >= S::CHANNELS) t.channel = -1;
#pragma unroll
        for (int d = D - 1; d >= 0; --d) {
            t.at[d] = rest % S::kernel(d);
            rest /= S::kernel(d);
        }
        return t;
    }

    BRICK_DEVICE const T* a(const int* row, const Tap& t) const {
        if (row[0] < 0 || t.channel < 0) return nullptr;
        int i[D];
#pragma unroll
        for (int d = 0; d < D; ++d) i[d] = row[1 + d] * S::stride(d) - S::pad(d) + t.at[d] * S::dilation(d);
        return this->input(row[0], i, t.channel);
    }

    BRICK_DEVICE const T* b(int k, int n) const {
        if constexpr (S::PACKED) return k < DEPTH && n < S::PADDED_COLUMNS ? this->packed(k, n, DEPTH) : nullptr;
        const Tap t = tap(k);
        const int channel = n / (RUN * S::PARTS) * RUN + n % RUN;
        if (t.channel < 0 || channel >= S::COLUMNS) return nullptr;
        const int row = this->group * S::COLUMNS + n / RUN % S::PARTS * S::OUT + channel;
        long long offset = row * S::w(0) + t.channel * S::w(1);
#pragma unroll
        for (int d = 0; d < D; ++d) offset += t.at[d] * S::w(2 + d);
        return global(reinterpret_cast<const T*>(this->at[2])) + offset;
    }

    // Whether some pixel of the box reads the input, not padding, at this tap.
    BRICK_DEVICE bool useful(const Tap& t) const {
        bool some = true;
#pragma unroll
        for (int d = 0; d < D; ++d) {
            const int shift = t.at[d] * S::dilation(d) - S::pad(d);
            some &= (this->s.hi[2 + d] - 1) * S::stride(d) + shift >= 0;
            some &= this->s.lo[2 + d] * S::stride(d) + shift < S::extent(d);
        }
        return some;
    }

    template <int DEPTH_OF_BUFFER> BRICK_DEVICE int next(int k) const {
        if constexpr (S::PADDED_CHANNELS % DEPTH_OF_BUFFER == 0 && DEPTH > S::PADDED_CHANNELS)
            while (k < DEPTH && !useful(tap(k))) k += S::PADDED_CHANNELS;
        return k;
    }
};

template <class S, class Core> BRICK_DEVICE void conv(const Step& s, char* const* at, char* shared) {
    ConvProblem<S> p(s, at);
    if (p.rows <= 0) return;
    for (int g = s.lo[1] / S::COLUMNS; g * S::COLUMNS < s.hi[1]; ++g) {
        p.choose_group(g);
        product<ConvProblem<S>, Core>(p, shared);
    }
}

}  // namespace brick
