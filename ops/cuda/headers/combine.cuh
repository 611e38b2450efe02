// The operations of reductions, and how results of the threads of a warp or block are combined. The order depends on
// the number of threads alone, so that the same bits come out every time.
#pragma once
#include "math.cuh"

namespace brick {

template <class T> BRICK_DEVICE T least() {
    if constexpr (math::IsFloat<T>::value) return -math::infinity<T>();
    else return math::is_signed<T>() ? (T)((math::Word<T>)1 << (8 * sizeof(T) - 1)) : (T)0;
}
template <class T> BRICK_DEVICE T most() {
    if constexpr (math::IsFloat<T>::value) return math::infinity<T>();
    else return (T)~(math::Word<T>)least<T>();
}

// Associative operations and their identities.
template <class T> struct Sum {
    using Type = T;
    static BRICK_DEVICE T start() { return (T)0; }
    static BRICK_DEVICE T of(T x, T y) {
        if constexpr (math::IsFloat<T>::value) return x + y;
        else return math::add(x, y);
    }
};
template <class T> struct Product {
    using Type = T;
    static BRICK_DEVICE T start() { return (T)1; }
    static BRICK_DEVICE T of(T x, T y) {
        if constexpr (math::IsFloat<T>::value) return x * y;
        else return math::mul(x, y);
    }
};
template <class T> struct Greatest {
    using Type = T;
    static BRICK_DEVICE T start() { return least<T>(); }
    static BRICK_DEVICE T of(T x, T y) { return math::max(x, y); }
};
template <class T> struct Smallest {
    using Type = T;
    static BRICK_DEVICE T start() { return most<T>(); }
    static BRICK_DEVICE T of(T x, T y) { return math::min(x, y); }
};

// A thread's total over chunks. Floating-point sums are compensated (two-sum): they carry the rounding errors along, so
// that the error of a million elements is about that of one chunk. Where a sum is not finite, the error is NaN and left
// out.
template <class C> struct Total {
    using T = typename C::Type;
    T value = C::start();
    BRICK_DEVICE void add(T chunk) { value = C::of(value, chunk); }
    BRICK_DEVICE T result() const { return value; }
};
template <class T> struct Compensated {
    T value = (T)0, error = (T)0;
    BRICK_DEVICE void add(T chunk) {
        const T next = value + chunk, added = next - value;
        error += (value - (next - added)) + (chunk - added);
        value = next;
    }
    BRICK_DEVICE T result() const {
        const T whole = value + error;
        return whole == whole ? whole : value;
    }
};
template <> struct Total<Sum<float>> : Compensated<float> {};
template <> struct Total<Sum<double>> : Compensated<double> {};

// Combines the values of LANES neighbouring lanes; all of them get the result.
template <class C, int LANES> BRICK_DEVICE typename C::Type over_lanes(typename C::Type v) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) v = C::of(v, shuffle_xor(v, mask));
    return v;
}

// Combines the values of all threads of the block, through 8 bytes of shared memory per warp; all get the result.
template <class C> BRICK_DEVICE typename C::Type over_block(typename C::Type v, char* shared) {
    using T = typename C::Type;
    T* parts = reinterpret_cast<T*>(shared);
    v = over_lanes<C, 32>(v);
    if (lane() == 0) parts[warp()] = v;
    sync();
    v = parts[0];
    for (int k = 1; k < warps(); ++k) v = C::of(v, parts[k]);
    sync();
    return v;
}

// Combines V values of each of the threads `column` + k · `columns`, k < `parts`, through shared memory that holds all
// of them. Threads without a part only join the barriers.
template <class C, int V>
BRICK_DEVICE void over_parts(typename C::Type (&v)[V], int column, int columns, int part, int parts, char* shared) {
    using T = typename C::Type;
    if (parts == 1) return;
    T* mine = reinterpret_cast<T*>(shared) + (part * columns + column) * V;
    if (part < parts)
#pragma unroll
        for (int k = 0; k < V; ++k) mine[k] = v[k];
    sync();
    for (int n = parts; n > 1; n = (n + 1) / 2) {
        const int half = (n + 1) / 2;
        if (part + half < n)
#pragma unroll
            for (int k = 0; k < V; ++k) mine[k] = v[k] = C::of(v[k], mine[half * columns * V + k]);
        sync();
    }
    const T* result = reinterpret_cast<T*>(shared) + column * V;
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = result[k];
    sync();
}

}  // namespace brick
