// PTX arithmetic on the host, after the PTX ISA: registers are words without a type, instructions say how they read them.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ptx {

using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;

// Registers before they are written: floats are NaN, addresses lead nowhere.
constexpr u16 JUNK16 = 0x7fa5;
constexpr u32 JUNK32 = 0x7fa5a5a5;
constexpr u64 JUNK64 = 0x7ffca5a57fa5a5a5;

template <class D, class S> inline D bits(S s) {
    static_assert(sizeof(D) == sizeof(S));
    D d;
    memcpy(&d, &s, sizeof d);
    return d;
}

// ---- 16-bit floats: numbers are computed in wider ones and rounded once

struct f16 {
    u16 word;
    f16() = default;
    template <class F> explicit f16(F v) : word(bits<u16>((_Float16)v)) {}
    operator f32() const { return (f32)bits<_Float16>(word); }
};
struct bf16 {
    u16 word;
    bf16() = default;
    explicit bf16(f32 v) {
        const u32 w = bits<u32>(v);
        word = v != v ? 0x7fff : (w + 0x7fff + (w >> 16 & 1)) >> 16;
    }
    explicit bf16(f64 v) {  // by way of a float whose last bit says that others were lost
        f32 near = (f32)v;
        if (std::isfinite(near) && near != v) {
            if (std::fabs((f64)near) > std::fabs(v)) near = bits<f32>(bits<u32>(near) - 1);
            near = bits<f32>(bits<u32>(near) | 1);
        }
        *this = bf16(near);
    }
    operator f32() const { return bits<f32>((u32)word << 16); }
};
template <class T> struct x2 {
    T v[2];  // the low half first
};
using f16x2 = x2<f16>;
using bf16x2 = x2<bf16>;

template <class T> constexpr bool SMALL = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T> constexpr bool FLOAT = std::is_floating_point_v<T> || SMALL<T>;
template <class T> constexpr bool PAIR = std::is_same_v<T, f16x2> || std::is_same_v<T, bf16x2>;

// What a register holds as a T, and what it holds after a T was written: wider registers are cut or extended.
template <class T, class R> inline T get(R r) {
    if constexpr (std::is_same_v<T, R>) return r;
    else if constexpr (std::is_integral_v<T>) return (T)r;
    else if constexpr (sizeof(T) == 4) return bits<T>((u32)r);
    else if constexpr (sizeof(T) == 2) return bits<T>((u16)r);
    else return bits<T>((u64)r);
}
template <class R, class T> inline void put(R& r, T v) {
    if constexpr (std::is_integral_v<T>) r = (R)(std::conditional_t<std::is_signed_v<T>, s64, u64>)v;
    else if constexpr (sizeof(T) == 8) r = bits<u64>(v);
    else if constexpr (sizeof(T) == 4) r = bits<u32>(v);
    else r = bits<u16>(v);
}

// ---- sums, products

template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> struct Twice;
template <> struct Twice<s16> { using type = s32; };
template <> struct Twice<u16> { using type = u32; };
template <> struct Twice<s32> { using type = s64; };
template <> struct Twice<u32> { using type = u64; };
template <> struct Twice<s64> { using type = __int128; };
template <> struct Twice<u64> { using type = unsigned __int128; };
template <class T> using Wide = typename Twice<T>::type;

// A function of 32- or 64-bit floats, or of 64-bit words, for all types.
template <class T, class F, class... A> inline T each(F f, A... a) {
    if constexpr (PAIR<T>) return T{{each<std::decay_t<decltype(T{}.v[0])>>(f, a.v[0]...), each<std::decay_t<decltype(T{}.v[0])>>(f, a.v[1]...)}};
    else if constexpr (SMALL<T>) return T(f((f64)(f32)a...));
    else if constexpr (FLOAT<T>) return f(a...);
    else return (T)f((u64)a...);
}
template <class T> inline T op_add(T a, T b) { return each<T>([](auto a, auto b) { return a + b; }, a, b); }
template <class T> inline T op_sub(T a, T b) { return each<T>([](auto a, auto b) { return a - b; }, a, b); }
template <class T> inline T op_mul(T a, T b) {
    static_assert(FLOAT<T> || PAIR<T>);
    return each<T>([](auto a, auto b) { return a * b; }, a, b);
}
template <class T> inline T op_neg(T a) {
    if constexpr (std::is_integral_v<T>) return (T)(0 - (u64)a);
    else return each<T>([](auto a) { return -a; }, a);
}
template <class T> inline T op_abs(T a) {
    if constexpr (std::is_integral_v<T>) return a < 0 ? op_neg(a) : a;
    else return each<T>([](auto a) { return std::fabs(a); }, a);
}
template <class T> inline T op_mul_lo(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> inline T op_mul_hi(T a, T b) { return (T)((Wide<T>)a * b >> 8 * sizeof(T)); }
template <class T> inline Wide<T> op_mul_wide(T a, T b) { return (Wide<T>)a * b; }
template <class T> inline T op_mad_lo(T a, T b, T c) { return op_add(op_mul_lo(a, b), c); }
template <class T> inline T op_mad_hi(T a, T b, T c) { return op_add(op_mul_hi(a, b), c); }
template <class T> inline Wide<T> op_mad_wide(T a, T b, Wide<T> c) { return op_add(op_mul_wide(a, b), c); }
// Sums of several words: the carry goes from one to the next. That of a difference is what was borrowed.
inline u32 carried(u64 sum, bool& carry) {
    carry = sum >> 32 & 1;
    return (u32)sum;
}
template <class T> inline T op_add_cc(T a, T b, bool& carry) { return carried((u64)a + b, carry); }
template <class T> inline T op_addc_cc(T a, T b, bool& carry) { return carried((u64)a + b + carry, carry); }
template <class T> inline T op_addc(T a, T b, bool carry) { return a + b + carry; }
template <class T> inline T op_sub_cc(T a, T b, bool& carry) { return carried((u64)a - b, carry); }
template <class T> inline T op_subc_cc(T a, T b, bool& carry) { return carried((u64)a - b - carry, carry); }
template <class T> inline T op_subc(T a, T b, bool carry) { return a - b - carry; }
template <class T> inline T op_mad_lo_cc(T a, T b, T c, bool& carry) { return op_add_cc(op_mul_lo(a, b), c, carry); }
template <class T> inline T op_mad_hi_cc(T a, T b, T c, bool& carry) { return op_add_cc(op_mul_hi(a, b), c, carry); }
template <class T> inline T op_madc_lo_cc(T a, T b, T c, bool& carry) { return op_addc_cc(op_mul_lo(a, b), c, carry); }
template <class T> inline T op_madc_hi_cc(T a, T b, T c, bool& carry) { return op_addc_cc(op_mul_hi(a, b), c, carry); }
template <class T> inline T op_madc_lo(T a, T b, T c, bool carry) { return op_addc(op_mul_lo(a, b), c, carry); }
template <class T> inline T op_madc_hi(T a, T b, T c, bool carry) { return op_addc(op_mul_hi(a, b), c, carry); }

template <class T> inline T op_fma_rn(T a, T b, T c) {
    return each<T>([](auto a, auto b, auto c) { return std::fma(a, b, c); }, a, b, c);
}
template <class T> __attribute__((noinline)) T directed(int mode, T a, T b, T c) {
    fesetround(mode);
    volatile T result = std::fma(a, b, c);
    fesetround(FE_TONEAREST);
    return result;
}
template <class T> inline T op_add_rz(T a, T b) { return directed(FE_TOWARDZERO, a, T(1), b); }
template <class T> inline T op_fma_rm(T a, T b, T c) { return directed(FE_DOWNWARD, a, b, c); }
template <class T> inline T op_fma_rp(T a, T b, T c) { return directed(FE_UPWARD, a, b, c); }
template <class T> inline T op_fma_rz(T a, T b, T c) { return directed(FE_TOWARDZERO, a, b, c); }

// Of integers by 0: an unspecified value.
template <class T> inline T op_div(T a, T b) {
    if (b == 0) return (T)~(T)0;
    return std::is_signed_v<T> && b == (T)-1 ? op_neg(a) : (T)(a / b);
}
template <class T> inline T op_rem(T a, T b) {
    if (b == 0) return a;
    return std::is_signed_v<T> && b == (T)-1 ? (T)0 : (T)(a % b);
}
template <class T> inline T op_div_rn(T a, T b) { return a / b; }
template <class T> inline T op_div_full(T a, T b) { return a / b; }
template <class T> inline T op_div_approx_ftz(T a, T b) { return a / b; }
template <class T> inline T op_div_approx(T a, T b) { return a / b; }

// The other one where one is no number.
template <class T> inline T op_min(T a, T b) {
    if constexpr (FLOAT<T> || PAIR<T>) return each<T>([](auto a, auto b) { return std::signbit(a) && a == b ? a : std::fmin(a, b); }, a, b);
    else return a < b ? a : b;
}
template <class T> inline T op_max(T a, T b) {
    if constexpr (FLOAT<T> || PAIR<T>) return each<T>([](auto a, auto b) { return std::signbit(b) && a == b ? a : std::fmax(a, b); }, a, b);
    else return a > b ? a : b;
}
template <class T> inline T op_min_NaN(T a, T b) {
    return each<T>([](auto a, auto b) { return a != a ? a : b != b ? b : std::fmin(a, b); }, a, b);
}
template <class T> inline T op_max_NaN(T a, T b) {
    return each<T>([](auto a, auto b) { return a != a ? a : b != b ? b : std::fmax(a, b); }, a, b);
}

// ---- functions

inline f32 op_ex2_approx_ftz(f32 a) { return std::exp2(a); }
inline f32 op_ex2_approx(f32 a) { return std::exp2(a); }
inline f32 op_lg2_approx_ftz(f32 a) { return std::log2(a); }
inline f32 op_lg2_approx(f32 a) { return std::log2(a); }
inline f32 op_tanh_approx(f32 a) { return std::tanh(a); }
inline f32 op_sin_approx(f32 a) { return std::sin(a); }
inline f32 op_cos_approx(f32 a) { return std::cos(a); }
template <class T> inline T op_rcp_rn(T a) { return 1 / a; }
template <class T> inline T op_rcp_approx_ftz(T a) { return 1 / a; }
template <class T> inline T op_rcp_approx(T a) { return 1 / a; }
template <class T> inline T op_sqrt_rn(T a) { return std::sqrt(a); }
template <class T> inline T op_sqrt_approx(T a) { return std::sqrt(a); }
template <class T> inline T op_rsqrt_approx_ftz(T a) { return 1 / std::sqrt(a); }
template <class T> inline T op_rsqrt_approx(T a) { return 1 / std::sqrt(a); }
template <class T> inline T op_copysign(T a, T b) { return std::copysign(b, a); }

// ---- bits

template <class T> inline T op_and(T a, T b) { return a & b; }
template <class T> inline T op_or(T a, T b) { return a | b; }
template <class T> inline T op_xor(T a, T b) { return a ^ b; }
template <class T> inline T op_not(T a) {
    if constexpr (std::is_same_v<T, bool>) return !a;
    else return ~a;
}
template <class T> inline T op_shl(T a, u32 n) { return n < 8 * sizeof(T) ? (T)((Unsigned<T>)a << n) : T(0); }
template <class T> inline T op_shr(T a, u32 n) {
    if (n < 8 * sizeof(T)) return a >> n;
    return std::is_signed_v<T> && a < 0 ? (T)-1 : T(0);
}
inline u32 op_shf_l_wrap(u32 a, u32 b, u32 n) { return (u32)(((u64)b << 32 | a) << (n & 31) >> 32); }
inline u32 op_shf_r_wrap(u32 a, u32 b, u32 n) { return (u32)(((u64)b << 32 | a) >> (n & 31)); }
inline u32 op_shf_l_clamp(u32 a, u32 b, u32 n) { return n < 32 ? op_shf_l_wrap(a, b, n) : a; }
inline u32 op_shf_r_clamp(u32 a, u32 b, u32 n) { return n < 32 ? op_shf_r_wrap(a, b, n) : b; }
template <class T> inline T op_brev(T a) {
    T r = 0;
    for (int k = 0; k < 8 * (int)sizeof a; ++k) r |= (a >> k & 1) << (8 * sizeof a - 1 - k);
    return r;
}
template <class T> inline u32 op_popc(T a) { return __builtin_popcountll(a); }
template <class T> inline u32 op_clz(T a) {
    u32 n = 0;
    while (n < 8 * sizeof a && !(a >> (8 * sizeof a - 1 - n) & 1)) ++n;
    return n;
}
// How far the highest bit must be shifted to become the first: of a number without one, all ones.
template <class T> inline u32 op_bfind_shiftamt(T a) {
    static_assert(std::is_unsigned_v<T>);
    return a ? op_clz(a) : ~0u;
}
template <class T> inline u32 op_bfind(T a) {
    static_assert(std::is_unsigned_v<T>);
    return a ? 8 * sizeof a - 1 - op_clz(a) : ~0u;
}
template <class T> inline T op_bfe(T a, u32 at, u32 count) {
    static_assert(std::is_unsigned_v<T>);
    at &= 255, count &= 255;
    const T rest = op_shr(a, at);
    return count >= 8 * sizeof a ? rest : (T)(rest & (((T)1 << count) - 1));
}
template <class T> inline T op_bfi(T a, T b, u32 at, u32 count) {
    at &= 255, count &= 255;
    const T ones = count >= 8 * sizeof a ? ~(T)0 : (T)(((T)1 << count) - 1);
    return (T)((b & ~op_shl(ones, at)) | op_shl((T)(a & ones), at));
}
inline u32 op_prmt(u32 a, u32 b, u32 c) {
    const u64 all = (u64)b << 32 | a;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
        const u32 pick = c >> 4 * k & 15, byte = (u32)(all >> 8 * (pick & 7)) & 255;
        r |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
    }
    return r;
}
inline u32 op_lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (int k = 0; k < 8; ++k)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
}
template <class T> inline T op_mov(T a) { return a; }
template <class T> inline T op_selp(T a, T b, bool p) { return p ? a : b; }

// ---- comparisons: of floats false where one is no number, those with a u true

template <class T> inline bool unordered(T a, T b) { return a != a || b != b; }
template <class T> inline bool op_setp_eq(T a, T b) { return a == b; }
template <class T> inline bool op_setp_ne(T a, T b) { return a != b && !unordered(a, b); }
template <class T> inline bool op_setp_lt(T a, T b) { return a < b; }
template <class T> inline bool op_setp_le(T a, T b) { return a <= b; }
template <class T> inline bool op_setp_gt(T a, T b) { return a > b; }
template <class T> inline bool op_setp_ge(T a, T b) { return a >= b; }
template <class T> inline bool op_setp_equ(T a, T b) { return a == b || unordered(a, b); }
template <class T> inline bool op_setp_neu(T a, T b) { return a != b; }
template <class T> inline bool op_setp_ltu(T a, T b) { return !(a >= b); }
template <class T> inline bool op_setp_leu(T a, T b) { return !(a > b); }
template <class T> inline bool op_setp_gtu(T a, T b) { return !(a <= b); }
template <class T> inline bool op_setp_geu(T a, T b) { return !(a < b); }
template <class T> inline bool op_setp_num(T a, T b) { return !unordered(a, b); }
template <class T> inline bool op_setp_nan(T a, T b) { return unordered(a, b); }

// ---- conversions

enum Round { NONE, RN, RZ, RM, RP, RNI, RZI, RMI, RPI };

template <Round R, class F> inline F integral(F v) {
    if constexpr (R == RNI) return std::nearbyint(v);
    else if constexpr (R == RZI) return std::trunc(v);
    else if constexpr (R == RMI) return std::floor(v);
    else if constexpr (R == RPI) return std::ceil(v);
    else return v;
}
// Beyond the ends of the range, its ends.
template <class D> inline D clamped(f64 v) {
    using Ends = std::numeric_limits<D>;
    if (v != v) return 0;
    if (v <= (f64)Ends::min()) return Ends::min();
    if (v >= (f64)Ends::max()) return Ends::max();
    return (D)v;
}
template <class D, class S> inline D clamped_integer(S s) {
    using Ends = std::numeric_limits<D>;
    const __int128 v = s;
    return v < Ends::min() ? Ends::min() : v > Ends::max() ? Ends::max() : (D)s;
}
template <class D, class S, Round R, bool SAT> inline D op_cvt(S s) {
    if constexpr (!FLOAT<D> && !FLOAT<S>) {
        static_assert(R == NONE);
        if constexpr (SAT) return clamped_integer<D>(s);
        else return (D)s;
    } else if constexpr (!FLOAT<D>) {
        static_assert(R >= RNI);
        if ((sizeof(D) == 8 || sizeof(S) == 8) && s != s) return (D)((u64)1 << (8 * sizeof(D) - 1));
        return clamped<D>(integral<R>((f64)s));
    } else if constexpr (!FLOAT<S>) {
        static_assert(R == RN && !SAT);
        if constexpr (SMALL<D>) {
            static_assert(sizeof(S) <= 4);
            return D((f64)s);
        } else return (D)s;
    } else {
        using Between = std::conditional_t<sizeof(S) == 8, f64, f32>;
        static_assert(sizeof(D) < sizeof(S) ? R == RN : R == NONE || R >= RNI || (SMALL<D> && SMALL<S> && R == RN));
        Between v = integral<R>((Between)s);
        if (SAT) v = v > 0 ? v < 1 ? v : Between(1) : Between(0);
        return (D)v;
    }
}
// A pair of small floats, the first one high.
template <class P> inline P op_cvt_two(f32 high, f32 low) {
    using T = std::decay_t<decltype(P{}.v[0])>;
    return P{{T(low), T(high)}};
}
// To 10 bits behind the point, halves away from zero.
inline u32 op_cvt_tf32(f32 v) { return v != v ? 0x7fffe000 : std::isinf(v) ? bits<u32>(v) : (bits<u32>(v) + 0x1000) & ~0x1fffu; }

}  // namespace ptx
