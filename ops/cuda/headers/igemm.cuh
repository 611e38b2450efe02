// Convolutions as matrix products (see `product`): rows are pixels of a box of the output, columns the output channels
// of a group, the depth runs over taps and the input channels of the group, channels innermost.
#pragma once
#include "tile.cuh"

namespace brick {

// A tap and a channel of the input; beyond the depth `channel` is -1, and `at` means nothing.
struct Tap {
    int channel, at[3];
};

// What convolutions share. `S` is printed per kernel:
//   T, D (spatial dimensions), CHANNELS and COLUMNS (input and output channels of a group), PADDED_CHANNELS (up to
//   whole words), PADDED_COLUMNS (those of the packed weights), TOGETHER (elements of the depth that lie together
//   there), PARTS, OUT (output channels), PACKED, A_VECTOR, B_VECTOR, WIDTH, ROWS_INNER,
//   kernel(d), stride(d), dilation(d), pad(d), extent(d) (of the input), checked(d) (whether taps may read padding),
//   x(d), w(d): strides of input and weights, in elements; Offset: a type that holds offsets inside one image,
//   finish(at, index, a, b, sums): columns [a, b) of WIDTH.
template <class S> struct ConvBase {
    using T = typename S::T;
    static constexpr int A_VECTOR = S::A_VECTOR, WIDTH = S::WIDTH, PARTS = S::PARTS, D = S::D;
    static constexpr bool B_VECTOR = S::B_VECTOR, B_PAIRS = false, B_DOWN = false, ROWS_INNER = S::ROWS_INNER;
    static constexpr bool PACKED = S::PACKED;
    static constexpr int STORED = S::PADDED_COLUMNS, BESIDE = 0;
    static constexpr long long DOWN = S::PADDED_COLUMNS;  // of packed weights

    // A coordinate beyond any input: rows and elements of the depth that are zero everywhere are shifted there.
    static constexpr int AWAY = 1 << 29;
    using Offset = typename S::Offset;
    // A row: the address of what its first tap reads of the group's first channel, and the coordinates of that.
    struct Row {
        const T* at;
        int start[D];
    };
    // How far a tap and a channel are from that, in memory and in coordinates.
    struct Shift {
        Offset at;
        int by[D];
    };

    const Step& s;
    char* const* at;
    int rows, depth, group = 0;

    BRICK_DEVICE ConvBase(const Step& s, char* const* at) : s(s), at(at) {}

    // Addresses are read again for each tile, since registers are needed for sums.
    BRICK_DEVICE const T* left() const { return global(reinterpret_cast<const T*>(at[1])); }
    BRICK_DEVICE const T* right() const { return global(reinterpret_cast<const T*>(at[2])); }

    // Channels of the group inside the box are the columns.
    BRICK_DEVICE int begin() const {
        const int lo = s.lo[1] - group * S::COLUMNS;
        return lo > 0 ? lo : 0;
    }
    BRICK_DEVICE int end() const {
        const int hi = s.hi[1] - group * S::COLUMNS;
        return hi < S::COLUMNS ? hi : S::COLUMNS;
    }

    // Calls `each` for every group of the box, with `p` set to that group.
    template <class P, class Each> static BRICK_DEVICE void over_groups(P& p, const Each& each) {
        if constexpr (S::COLUMNS == S::OUT) {
            each();
        } else {
            for (p.group = p.s.lo[1] / S::COLUMNS; p.group * S::COLUMNS < p.s.hi[1]; ++p.group) each();
        }
    }

    template <class Sum> BRICK_DEVICE void finish(const int* row, int n, int a, int b, const Sum* sums) const {
        int index[2 + D];
        index[0] = row[0];
        index[1] = group * S::COLUMNS + n;
#pragma unroll
        for (int d = 0; d < D; ++d) index[2 + d] = row[1 + d];
        S::finish(at, index, a, b, sums);
    }

    // Column n of the packed weights from depth k on; groups are `deep` apart.
    BRICK_DEVICE const T* packed(int k, int n, int deep) const {
        return right() + ((long long)group * deep + k) * DOWN + n * S::TOGETHER;
    }

    // The row whose first tap is at these coordinates of an image, or none.
    BRICK_DEVICE Row row_at(int image, const int (&start)[D]) const {
        Row r;
        Offset offset = (Offset)group * (Offset)(S::CHANNELS * S::x(1));
#pragma unroll
        for (int d = 0; d < D; ++d) {
            r.start[d] = start[d];
            offset += (Offset)start[d] * (Offset)S::x(2 + d);
        }
        r.at = left() + image * S::x(0) + offset;
        if (image < 0) r.at = left(), r.start[0] = AWAY;
        return r;
    }
    BRICK_DEVICE Shift shift_by(int channel, const int (&by)[D]) const {
        Shift t;
        t.at = (Offset)channel * (Offset)S::x(1);
#pragma unroll
        for (int d = 0; d < D; ++d) {
            t.by[d] = by[d];
            t.at += (Offset)by[d] * (Offset)S::x(2 + d);
        }
        if (channel < 0) t.at = 0, t.by[0] = AWAY;
        return t;
    }
    BRICK_DEVICE bool inside(const Row& r, const Shift& t) const {
        bool in = true;
#pragma unroll
        for (int d = 0; d < D; ++d)
            if (d == 0 || S::checked(d)) in &= (unsigned)(r.start[d] + t.by[d]) < (unsigned)S::extent(d);
        return in;
    }
    BRICK_DEVICE const T* from(const Row& r, const Shift& t) const { return r.at + t.at; }
    template <int BUFFER> static constexpr BRICK_DEVICE bool together() { return S::CHANNELS % BUFFER == 0; }
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
    static constexpr int DEEP = (DEPTH + S::TOGETHER - 1) / S::TOGETHER * S::TOGETHER;  // of packed weights

    unsigned useless = 0;  // bit t: all that tap t reads for pixels of the box is padding

    BRICK_DEVICE ConvProblem(const Step& s, char* const* at) : Base(s, at) {
        this->depth = DEPTH;
        this->rows = s.hi[0] - s.lo[0];
#pragma unroll
        for (int d = 0; d < D; ++d) this->rows *= s.hi[2 + d] - s.lo[2 + d];
        if constexpr (taps() <= 32)
#pragma unroll 1
            for (int t = 0; t < taps(); ++t) useless |= !useful(tap(t * S::PADDED_CHANNELS)) << t;
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

    // Whether buffers of as many elements never reach beyond the depth.
    template <int BUFFER> static constexpr BRICK_DEVICE bool fits() { return DEPTH % BUFFER == 0; }

    // Unsigned, since that makes the divisions by constants shorter; this is computed for each buffer.
    template <bool BEYOND = true> BRICK_DEVICE Tap tap(int k) const {
        Tap t{};
        unsigned rest = (unsigned)k / S::PADDED_CHANNELS;
        t.channel = (unsigned)k % S::PADDED_CHANNELS;
        if ((BEYOND && k >= DEPTH) || (S::PADDED_CHANNELS > S::CHANNELS && t.channel >= S::CHANNELS)) t.channel = -1;
#pragma unroll
        for (int d = D - 1; d > 0; --d) {
            t.at[d] = rest % S::kernel(d);
            rest /= S::kernel(d);
        }
        t.at[0] = rest;
        return t;
    }

    BRICK_DEVICE typename Base::Row row(const int* index) const {
        int start[D];
#pragma unroll
        for (int d = 0; d < D; ++d) start[d] = index[1 + d] * S::stride(d) - S::pad(d);
        return this->row_at(index[0], start);
    }

    template <int BUFFER> BRICK_DEVICE typename Base::Shift shift(int k) const {
        const Tap t = tap<!fits<BUFFER>()>(k);
        int by[D];
#pragma unroll
        for (int d = 0; d < D; ++d) by[d] = t.at[d] * S::dilation(d);
        return this->shift_by(t.channel, by);
    }

    BRICK_DEVICE const T* column(int n) const { return this->packed(0, n, DEEP); }
    static BRICK_DEVICE int deep() { return DEPTH; }

    BRICK_DEVICE const T* b(int k, int n) const {
        if constexpr (S::PACKED) return k < DEPTH && n < S::PADDED_COLUMNS ? this->packed(k, n, DEEP) : nullptr;
        const Tap t = tap(k);
        const int channel = n / (RUN * S::PARTS) * RUN + n % RUN;
        if (t.channel < 0 || channel >= S::COLUMNS) return nullptr;
        const int row = this->group * S::COLUMNS + n / RUN % S::PARTS * S::OUT + channel;
        long long offset = row * S::w(0) + t.channel * S::w(1);
#pragma unroll
        for (int d = 0; d < D; ++d) offset += t.at[d] * S::w(2 + d);
        return this->right() + offset;
    }

    // Whether some pixel of the box reads the input, not padding, at this tap.
    BRICK_DEVICE bool useful(const Tap& t) const {
        bool some = true;
#pragma unroll
        for (int d = 0; d < D; ++d) {
            const int by = t.at[d] * S::dilation(d) - S::pad(d);
            some &= (this->s.hi[2 + d] - 1) * S::stride(d) + by >= 0;
            some &= this->s.lo[2 + d] * S::stride(d) + by < S::extent(d);
        }
        return some;
    }

    template <int DEPTH_OF_BUFFER> BRICK_DEVICE int next(int k) const {
        if constexpr (S::PADDED_CHANNELS % DEPTH_OF_BUFFER == 0 && taps() > 1 && taps() <= 32)
            while (k < DEPTH && useless >> (unsigned)k / S::PADDED_CHANNELS & 1) k += S::PADDED_CHANNELS;
        return k;
    }
};

template <class S, class Core> BRICK_DEVICE void conv(const Step& s, char* const* at, char* shared) {
    ConvProblem<S> p(s, at);
    if (p.rows <= 0) return;
    ConvBase<S>::over_groups(p, [&] { product<ConvProblem<S>, Core>(p, shared); });
}

}  // namespace brick
