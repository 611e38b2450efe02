// Chains of operators on pixels (ops/operators/chains/pixel_chain.py): a warp takes 16 pixels through all of them, and
// what is between lies in its registers, as sums of tensor cores do.
#pragma once
#include "combine.cuh"
#include "mma.cuh"
#include "vectors.cuh"
#include "walk.cuh"

namespace brick {
namespace chain {

constexpr int PIXELS = 16, SIDES = 2, FOUR = 4;  // of a warp, of these those of a lane, its channels that lie together

// C channels of the warp's pixels. Lane l has those of pixels l / 4 and l / 4 + 8, its two sides: of each block of 16
// channels the four from l % 4 * 4 on, `at(side, block * 4 + k)`. Beyond C they are zero. In `sum` they lie as mma has
// the sums of two tiles of 8 columns: of the first tile its columns are channels 0, 1, 4, 5, 8, … of the block, of the
// second 2, 3, 6, 7, 10, …
template <int C> struct Values {
    static constexpr int BLOCKS = (C + 15) / 16;
    float sum[BLOCKS * 2][4];
    BRICK_DEVICE float& at(int side, int k) { return sum[k / 2][side * 2 + k % 2]; }
    BRICK_DEVICE float at(int side, int k) const { return sum[k / 2][side * 2 + k % 2]; }
};

// The first of a lane's channels in a block, and how many of four from there on there are.
BRICK_DEVICE int channel(int block) { return block * 16 + lane() % 4 * FOUR; }
template <int C> BRICK_DEVICE int there(int block) {
    if (C % 16 == 0) return FOUR;
    const int left = C - channel(block);
    return left < 0 ? 0 : left < FOUR ? left : FOUR;
}

// Pixels of a box of images [N, C, …].
template <int RANK> BRICK_DEVICE int pixels(const Step& s) {
    int n = s.hi[0] - s.lo[0];
#pragma unroll
    for (int d = 2; d < RANK; ++d) n *= s.hi[d] - s.lo[d];
    return s.lo[1] < s.hi[1] ? n : 0;
}

// The index of pixel m of a box, of channel 0; of the last one, and false, where there is none.
template <int RANK> BRICK_DEVICE bool locate(const Step& s, int pixels, int m, int (&index)[RANK]) {
    const bool found = m < pixels;
    if (!found) m = pixels - 1;
#pragma unroll
    for (int d = RANK - 1; d >= 2; --d) {
        const int extent = s.hi[d] - s.lo[d], rest = pixels < (1 << 20) ? small_quotient(m, extent) : m / extent;
        index[d] = s.lo[d] + m - rest * extent;
        m = rest;
    }
    index[0] = s.lo[0] + m, index[1] = 0;
    return found;
}

// Four channels of a side and block, from the address of channel 0 on; zeros beyond C.
template <int STRIDE, bool ALIGNED, int C, class T>
BRICK_DEVICE void take_four(const T* from, int block, float (&four)[FOUR]) {
    const int n = there<C>(block);
#pragma unroll
    for (int k = 0; k < FOUR; ++k) four[k] = 0;
    fetch<FOUR, STRIDE, ALIGNED>(from + channel(block) * STRIDE, 0, n, four);
#pragma unroll
    for (int k = 0; k < FOUR; ++k)
        if (STRIDE == 0 && k >= n) four[k] = 0;
}

// All channels of both sides.
template <int STRIDE, bool ALIGNED, int C, class T>
BRICK_DEVICE void take(Values<C>& v, const T* const (&from)[SIDES]) {
#pragma unroll
    for (int block = 0; block < Values<C>::BLOCKS; ++block)
#pragma unroll
        for (int side = 0; side < SIDES; ++side) {
            float four[FOUR];
            take_four<STRIDE, ALIGNED, C>(from[side], block, four);
#pragma unroll
            for (int k = 0; k < FOUR; ++k) v.at(side, block * FOUR + k) = four[k];
        }
}

// Stores those of C channels, from block `first` on, that the box has, of one side; `to` is the address of channel 0.
template <int STRIDE, bool ALIGNED, int C, int N, class T>
BRICK_DEVICE void put_side(const Step& s, const Values<N>& v, int first, int side, T* to) {
    const bool whole = s.lo[1] == 0 && s.hi[1] >= C;
#pragma unroll
    for (int block = 0; block < Values<N>::BLOCKS; ++block) {
        const int c = channel(first + block), n = there<C>(first + block);
        float four[FOUR];
#pragma unroll
        for (int k = 0; k < FOUR; ++k) four[k] = v.at(side, block * FOUR + k);
        if (whole) {
            put<STRIDE, ALIGNED>(to + c * STRIDE, 0, n, four);
        } else {
            const int a = s.lo[1] > c ? s.lo[1] - c : 0, b = s.hi[1] - c < n ? s.hi[1] - c : n;
            if (a < b) put<STRIDE, ALIGNED>(to + c * STRIDE, a, b, four);
        }
    }
}

template <int C, int PARTS> BRICK_DEVICE void clear(Values<C> (&v)[PARTS]) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
        for (int k = 0; k < Values<C>::BLOCKS * 8; ++k) v[part].sum[k / 4][k % 4] = 0;
}

// The words that tensor cores take of a block of channels, in steps of 8 words of the depth. The depth has channels in
// an order in which each lane has its own: so sums become factors without moving.
template <class T> struct Factors {
    static constexpr int STEPS = 1;
    template <int C> static BRICK_DEVICE void words(const Values<C>& x, int block, unsigned (&a)[STEPS][4]) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int first = block * FOUR + k / 2 * 2;
            const Vector<T, 2> both{T(x.at(k % 2, first)), T(x.at(k % 2, first + 1))};
            memcpy(&a[0][k], &both, 4);
        }
    }
};
template <> struct Factors<float> {
    static constexpr int STEPS = 2;
    template <int C> static BRICK_DEVICE void words(const Values<C>& x, int block, unsigned (&a)[STEPS][4]) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const float one = x.at(k % 2, block * FOUR + k / 2);
            unsigned word;
            memcpy(&word, &one, 4);
            a[k / 4][k % 4] = fragment_word<float>(word);
        }
    }
};

// Products of a block of channels with weights that lie as `PixelChainKernel.pack` has them: per part and block of the
// depth, of which there are DEEP, per block of all columns, and per step, a lane's words of both tiles. `first` is the
// first block of columns that is wanted.
template <class T, int DEEP, int PARTS, int N>
BRICK_DEVICE void multiply_block(
    Values<N> (&y)[PARTS], const unsigned (&a)[Factors<T>::STEPS][4], const unsigned* w, int block, int first, int all) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
        for (int to = 0; to < Values<N>::BLOCKS; ++to)
#pragma unroll
            for (int step = 0; step < Factors<T>::STEPS; ++step) {
                const int at = ((part * DEEP + block) * all + first + to) * Factors<T>::STEPS + step;
                const auto b = load<4>(w + at * 4 * WARP);
                const unsigned one[2] = {b.v[0], b.v[1]}, other[2] = {b.v[2], b.v[3]};
                mma<T>(y[part].sum[to * 2], a[step], one);
                mma<T>(y[part].sum[to * 2 + 1], a[step], other);
            }
}
BRICK_DEVICE const unsigned* lane_words(const void* weights) {
    return global(static_cast<const unsigned*>(weights)) + lane() * 4;
}

// y += w x, for values in registers.
template <class T, int K, int PARTS, int N>
BRICK_DEVICE void multiply(Values<N> (&y)[PARTS], const Values<K>& x, const void* weights, int first, int all) {
    warp_sync();  // what lanes load of channels that are not all there may have made them diverge
#pragma unroll
    for (int block = 0; block < Values<K>::BLOCKS; ++block) {
        unsigned a[Factors<T>::STEPS][4];
        Factors<T>::words(x, block, a);
        multiply_block<T, Values<K>::BLOCKS>(y, a, lane_words(weights), block, first, all);
    }
}

// The same for values in memory, which are taken block by block; `scale(side, block, four)` may change four of them.
template <class T, int K, int STRIDE, bool ALIGNED, int PARTS, int N, class Scale>
BRICK_DEVICE void multiply_from(
    Values<N> (&y)[PARTS], const T* const (&from)[SIDES], const Scale& scale, const void* weights, int first, int all) {
    constexpr int DEEP = Values<K>::BLOCKS;
#pragma unroll(DEEP <= 4 ? DEEP : 2)
    for (int block = 0; block < DEEP; ++block) {
        Values<16> x;
#pragma unroll
        for (int side = 0; side < SIDES; ++side) {
            float four[FOUR];
            take_four<STRIDE, ALIGNED, K>(from[side], block, four);
            scale(side, block, four);
#pragma unroll
            for (int k = 0; k < FOUR; ++k) x.at(side, k) = four[k];
        }
        unsigned a[Factors<T>::STEPS][4];
        Factors<T>::words(x, 0, a);
        warp_sync();
        multiply_block<T, DEEP>(y, a, lane_words(weights), block, first, all);
    }
}

// What the four lanes that share a pixel have, combined.
template <class Combine> BRICK_DEVICE float over_channels(float v) {
    v = Combine::of(v, shuffle_xor(v, 1));
    return Combine::of(v, shuffle_xor(v, 2));
}

}  // namespace chain
}  // namespace brick
