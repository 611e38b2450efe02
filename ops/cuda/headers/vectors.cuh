// Loads and stores of V elements: converted to the type they are computed in, in one access where alignment allows it.
#pragma once
#include "portable.cuh"

namespace brick {

// Loads elements [a, b) of the V that lie STRIDE apart from p on; the rest of v does not change. ALIGNED: p is aligned
// for loads of 16 bytes, or of all V elements where those are fewer bytes.
template <int V, int STRIDE, bool ALIGNED, class T, class A>
BRICK_DEVICE void fetch(const T* p, int a, int b, A (&v)[V]) {
    constexpr int TOGETHER = V * sizeof(T) <= 16 ? V : 16 / (int)sizeof(T);
    p = global(p);
    if (STRIDE == 0) {
        const A value = (A)p[0];
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] = value;
    } else if (V > 1 && STRIDE == 1 && ALIGNED && a == 0 && b == V) {
#pragma unroll
        for (int k = 0; k < V; k += TOGETHER) {
            const Vector<T, TOGETHER> part = load<TOGETHER>(p + k);
#pragma unroll
            for (int m = 0; m < TOGETHER; ++m) v[k + m] = (A)part.v[m];
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; ++k)
            if (k >= a && k < b) v[k] = (A)p[(long long)k * STRIDE];
    }
}

// Stores elements [a, b) of v, rounded to T.
template <int STRIDE, bool ALIGNED, int V, class T, class A>
BRICK_DEVICE void put(T* p, int a, int b, const A (&v)[V]) {
    constexpr int TOGETHER = V * sizeof(T) <= 16 ? V : 16 / (int)sizeof(T);
    p = global(p);
    if (V > 1 && STRIDE == 1 && ALIGNED && a == 0 && b == V) {
#pragma unroll
        for (int k = 0; k < V; k += TOGETHER) {
            Vector<T, TOGETHER> part;
#pragma unroll
            for (int m = 0; m < TOGETHER; ++m) part.v[m] = (T)v[k + m];
            store_global(p + k, part);
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; ++k)
            if (k >= a && k < b) p[(long long)k * STRIDE] = (T)v[k];
    }
}

}  // namespace brick
