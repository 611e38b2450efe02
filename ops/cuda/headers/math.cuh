// The functions of the expression language (ops/expr.py) on scalars. Nothing here traps: integers wrap, division by
// zero gives 0, shifts take any count. Floating-point functions are within 4 units in the last place.
#pragma once
#include "portable.cuh"

namespace brick::math {

union FloatBits {
    unsigned int bits;
    float value;
};
template <class T> BRICK_DEVICE T infinity() { return (T)FloatBits{0x7f800000}.value; }
template <class T> BRICK_DEVICE T nan() { return (T)FloatBits{0x7fc00000}.value; }

// ---- floating point

#define BRICK_UNARY(name, single, wide)                                   \
    BRICK_DEVICE float name(float x) { return ::single(x); }              \
    BRICK_DEVICE double name(double x) { return ::wide(x); }
BRICK_UNARY(sqrt, sqrtf, sqrt)
BRICK_UNARY(exp, expf, exp)
BRICK_UNARY(log, logf, log)
BRICK_UNARY(sin, sinf, sin)
BRICK_UNARY(cos, cosf, cos)
BRICK_UNARY(tan, tanf, tan)
BRICK_UNARY(asin, asinf, asin)
BRICK_UNARY(acos, acosf, acos)
BRICK_UNARY(atan, atanf, atan)
BRICK_UNARY(sinh, sinhf, sinh)
BRICK_UNARY(cosh, coshf, cosh)
BRICK_UNARY(tanh, tanhf, tanh)
BRICK_UNARY(asinh, asinhf, asinh)
BRICK_UNARY(acosh, acoshf, acosh)
BRICK_UNARY(atanh, atanhf, atanh)
BRICK_UNARY(erf, erff, erf)
BRICK_UNARY(floor, floorf, floor)
BRICK_UNARY(ceil, ceilf, ceil)
BRICK_UNARY(round, rintf, rint)  // halves to even
#undef BRICK_UNARY

BRICK_DEVICE float pow(float x, float y) { return ::powf(x, y); }
BRICK_DEVICE double pow(double x, double y) { return ::pow(x, y); }
BRICK_DEVICE float fmod(float x, float y) { return ::fmodf(x, y); }
BRICK_DEVICE double fmod(double x, double y) { return ::fmod(x, y); }

template <class T> BRICK_DEVICE bool isnan(T x) { return x != x; }
template <class T> BRICK_DEVICE bool isposinf(T x) { return x == infinity<T>(); }
template <class T> BRICK_DEVICE bool isneginf(T x) { return x == -infinity<T>(); }
template <class T> BRICK_DEVICE bool isinf(T x) { return isposinf(x) || isneginf(x); }

template <class T> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };

// e/(1 + e) below 0, 1/(1 + e) above, with e = exp(-|x|), so that nothing overflows.
template <class T> BRICK_DEVICE T sigmoid(T x) {
    const T e = exp(x < 0 ? x : -x);
    return (x < 0 ? e : (T)1) / ((T)1 + e);
}

// ---- integers

// The unsigned type that arithmetic modulo 2^32 or 2^64 is done in.
template <bool LONG> struct WordOf { using type = unsigned int; };
template <> struct WordOf<true> { using type = unsigned long long; };
template <class T> using Word = typename WordOf<sizeof(T) == 8>::type;
template <class T> BRICK_DEVICE constexpr bool is_signed() { return (T)-1 < (T)0; }

template <class T> BRICK_DEVICE T add(T x, T y) { return (T)((Word<T>)x + (Word<T>)y); }
template <class T> BRICK_DEVICE T sub(T x, T y) { return (T)((Word<T>)x - (Word<T>)y); }
template <class T> BRICK_DEVICE T mul(T x, T y) { return (T)((Word<T>)x * (Word<T>)y); }
template <class T> BRICK_DEVICE T neg(T x) { return (T)(0 - (Word<T>)x); }

// Truncates. The least number over -1 is itself.
template <class T> BRICK_DEVICE T div(T x, T y) {
    if (y == 0) return 0;
    if (is_signed<T>() && y == (T)-1) return neg(x);
    return (T)(x / y);
}
// Shifts by the width or more leave zeros, to the right signs.
template <class T> BRICK_DEVICE T shl(T x, T count) {
    constexpr int WIDTH = 8 * sizeof(T);
    return (Word<T>)count < WIDTH ? (T)((Word<T>)x << (int)count) : (T)0;
}
template <class T> BRICK_DEVICE T shr(T x, T count) {
    constexpr int WIDTH = 8 * sizeof(T);
    if ((Word<T>)count < WIDTH) return (T)(x >> (int)count);
    return x < 0 ? (T)-1 : (T)0;
}

// x^y modulo the width of the base, y not negative.
template <class T> BRICK_DEVICE T whole_power(T x, unsigned long long y) {
    T result = 1;
    for (T square = x; y; y >>= 1, square = mul(square, square))
        if (y & 1) result = mul(result, square);
    return result;
}
// A negative exponent gives the reciprocal, truncated to -1, 0 or 1.
template <class T, class E> BRICK_DEVICE T int_power(T x, E y) {
    if (!(y < 0)) return whole_power(x, (unsigned long long)y);
    if (x == (T)1) return 1;
    return is_signed<T>() && x == (T)-1 ? (y & 1 ? (T)-1 : (T)1) : (T)0;
}

// ---- any number

template <class T> BRICK_DEVICE T reciprocal(T x) {
    if constexpr (IsFloat<T>::value) return (T)1 / x;
    else return div((T)1, x);
}
// A NaN and zeros stay.
template <class T> BRICK_DEVICE T sign(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x; }
BRICK_DEVICE float abs(float x) { return ::fabsf(x); }
BRICK_DEVICE double abs(double x) { return ::fabs(x); }
template <class T> BRICK_DEVICE T abs(T x) { return x < 0 ? neg(x) : x; }

// NaN where either is.
template <class T> BRICK_DEVICE T max(T x, T y) { return x > y || x != x ? x : y; }
template <class T> BRICK_DEVICE T min(T x, T y) { return x < y || x != x ? x : y; }
#ifndef BRICK_HOST
// An instruction each, where the compiler makes four of the text above: that tells which zero and which NaN is meant.
BRICK_DEVICE float max(float x, float y) {
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(y));
    return v;
}
BRICK_DEVICE float min(float x, float y) {
    float v;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(y));
    return v;
}
#endif

// The remainder with the sign of the dividend; of integers 0 where the divisor is.
template <class T> BRICK_DEVICE T fmod(T x, T y) {
    if (y == 0 || (is_signed<T>() && y == (T)-1)) return 0;
    return (T)(x % y);
}
// The remainder with the sign of the divisor.
template <class T> BRICK_DEVICE T mod(T x, T y) {
    const T rest = fmod(x, y);
    const bool opposite = (rest < 0 && y > 0) || (rest > 0 && y < 0);
    return opposite ? (T)(rest + y) : rest;
}

// ---- from floating point to integers: truncated, through 64 bits, which saturate, and wrap into narrower types

template <class F> BRICK_DEVICE long long to_long(F x) {
    if (x != x) return 0;
    if (x >= (F)9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x < (F)-9223372036854775808.0) return -0x7fffffffffffffffll - 1;
    return (long long)x;
}
template <class T, class F> BRICK_DEVICE T to_integer(F x) {
    if (sizeof(T) == 8 && !is_signed<T>() && x >= (F)9223372036854775808.0)
        return x >= (F)18446744073709551616.0 ? (T)-1 : (T)((T)(long long)(x - (F)9223372036854775808.0) + (1ull << 63));
    return (T)to_long(x);
}
// x^y as an integer. A device's power of 3 and 1 may be 3 less an ulp or two, which should not be cut to 2.
template <class T> BRICK_DEVICE T power_to_integer(double x, double y) {
    const double power = pow(x, y), near = round(power);
    return to_integer<T>(abs(power - near) <= 4.5e-16 * abs(power) ? near : power);
}

}  // namespace brick::math
