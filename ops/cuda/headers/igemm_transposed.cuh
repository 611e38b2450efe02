// Transposed convolutions as products of matrices. Along a dimension of stride s, all outputs o of one phase, (o + pad)
// mod s, sum the same taps: every `step`-th one, each reading the input `back` before that of the tap before. There is
// one product for each combination of phases.
#pragma once
#include "igemm.cuh"

namespace brick {

// `S` is as for ConvBase, and has step(d) = stride / gcd(stride, dilation), back(d) = dilation / gcd and inverse(d),
// which times back(d) is 1 modulo step(d). Packed weights are ordered by the first tap of a phase, then by tap.
template <class S> struct TransposedProblem : ConvBase<S> {
    using Base = ConvBase<S>;
    using typename Base::T;
    using Base::D;

    int origin[D], counts[D], taps[D], first_tap[D], start;

    BRICK_DEVICE TransposedProblem(const Step& s, char* const* at) : Base(s, at) {}

    static BRICK_DEVICE constexpr int all_taps() {
        int n = 1;
        for (int d = 0; d < D; ++d) n *= S::kernel(d);
        return n;
    }

    static BRICK_DEVICE constexpr int phases() {
        int n = 1;
        for (int d = 0; d < D; ++d) n *= S::stride(d);
        return n;
    }

    // The outputs of phase `f` become the rows, its taps the depth.
    BRICK_DEVICE void choose_phase(int f) {
        int sums = 1, scale = all_taps();
        this->rows = this->s.hi[0] - this->s.lo[0];
        int phase[D];
#pragma unroll
        for (int d = D - 1; d >= 0; --d) {
            phase[d] = f % S::stride(d);
            f /= S::stride(d);
        }
        start = 0;
#pragma unroll
        for (int d = 0; d < D; ++d) {
            const int lo = this->s.lo[2 + d], hi = this->s.hi[2 + d], step = S::step(d), shared = S::stride(d) / step;
            const int behind = (lo + S::pad(d)) % S::stride(d);
            origin[d] = lo + (phase[d] >= behind ? phase[d] - behind : phase[d] - behind + S::stride(d));
            counts[d] = origin[d] < hi ? (hi - origin[d] + S::stride(d) - 1) / S::stride(d) : 0;
            this->rows *= counts[d];
            const int t = phase[d] / shared * S::inverse(d) % step, whole = S::kernel(d) / step, more = S::kernel(d) % step;
            first_tap[d] = t;
            taps[d] = phase[d] % shared ? 0 : whole + (t < more);
            scale /= S::kernel(d);
            start += sums * (t * whole + (t < more ? t : more)) * scale;
            sums *= taps[d];
        }
        this->depth = sums * S::PADDED_CHANNELS;
    }

    BRICK_DEVICE void locate(int m, int* row) const {
#pragma unroll
        for (int d = D - 1; d >= 0; --d) {
            row[1 + d] = origin[d] + m % counts[d] * S::stride(d);
            m /= counts[d];
        }
        row[0] = this->s.lo[0] + m;
    }

    // n / taps[d]: one of two numbers that are known when this is compiled, so that nothing is divided.
    BRICK_DEVICE unsigned quotient(int d, unsigned n) const {
        const unsigned fewest = S::kernel(d) / S::step(d);
        if (S::kernel(d) % S::step(d) == 0) return n / fewest;
        if (fewest == 0) return n;
        return taps[d] == (int)fewest ? n / fewest : n / (fewest + 1);
    }

    template <int BUFFER> static constexpr BRICK_DEVICE bool fits() { return S::PADDED_CHANNELS % BUFFER == 0; }

    template <bool BEYOND = true> BRICK_DEVICE Tap tap(int k) const {
        Tap t{};
        unsigned rest = (unsigned)k / S::PADDED_CHANNELS;
        t.channel = (unsigned)k % S::PADDED_CHANNELS;
        if ((BEYOND && k >= this->depth) || (S::PADDED_CHANNELS > S::CHANNELS && t.channel >= S::CHANNELS))
            t.channel = -1;
#pragma unroll
        for (int d = D - 1; d > 0; --d) {
            const unsigned next = quotient(d, rest);
            t.at[d] = rest - next * taps[d];
            rest = next;
        }
        t.at[0] = rest;
        return t;
    }

    BRICK_DEVICE typename Base::Row row(const int* index) const {
        int start[D];
#pragma unroll
        for (int d = 0; d < D; ++d)
            start[d] = (index[1 + d] + S::pad(d) - first_tap[d] * S::dilation(d)) / S::stride(d);
        return this->row_at(index[0], start);
    }

    template <int BUFFER> BRICK_DEVICE typename Base::Shift shift(int k) const {
        const Tap t = tap<!fits<BUFFER>()>(k);
        int by[D];
#pragma unroll
        for (int d = 0; d < D; ++d) by[d] = -t.at[d] * S::back(d);
        return this->shift_by(t.channel, by);
    }

    BRICK_DEVICE const T* column(int n) const {
        return this->packed(start * S::PADDED_CHANNELS, n, all_taps() * S::PADDED_CHANNELS);
    }
    BRICK_DEVICE int deep() const { return this->depth; }

    BRICK_DEVICE const T* b(int k, int n) const {
        if constexpr (S::PACKED)
            return k < this->depth && n < S::PADDED_COLUMNS ? column(n) + k * Base::DOWN : nullptr;
        const Tap t = tap(k);
        if (t.channel < 0 || n >= S::COLUMNS) return nullptr;
        long long offset = (this->group * S::CHANNELS + t.channel) * S::w(0) + n * S::w(1);
#pragma unroll
        for (int d = 0; d < D; ++d) offset += (first_tap[d] + t.at[d] * S::step(d)) * S::w(2 + d);
        return this->right() + offset;
    }

    template <int BUFFER> BRICK_DEVICE int next(int k) const { return k; }
};

template <class S, class Core> BRICK_DEVICE void conv_transpose(const Step& s, char* const* at, char* shared) {
    TransposedProblem<S> p(s, at);
    for (int f = 0; f < p.phases(); ++f) {
        p.choose_phase(f);
        ConvBase<S>::over_groups(p, [&] { product<TransposedProblem<S>, Core>(p, shared); });
    }
}

}  // namespace brick
