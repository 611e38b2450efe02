// The words that all device sources are written in. On a GPU they are CUDA's; with BRICK_HOST defined a header of the
// tests gives them to a host compiler, where the threads of a block take turns.
#pragma once

#ifdef BRICK_HOST
#include "portable_host.hpp"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BRICK_DEVICE __device__ __forceinline__
#define BRICK_FUNCTION __device__ __noinline__
#define BRICK_CONST __device__ const
#define BRICK_KERNEL(name, Context, THREADS, BLOCKS)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name(const Context* c, int first, int count)
// The dynamic shared memory of the block.
#define BRICK_SHARED(name) extern __shared__ __align__(16) char name[]

namespace brick {

BRICK_DEVICE int thread() { return threadIdx.x; }
BRICK_DEVICE int threads() { return blockDim.x; }
BRICK_DEVICE int block() { return blockIdx.x; }
BRICK_DEVICE int blocks() { return gridDim.x; }
BRICK_DEVICE void sync() { __syncthreads(); }
BRICK_DEVICE void warp_sync() { __syncwarp(); }
template <class T> BRICK_DEVICE T shuffle(T v, int lane) { return __shfl_sync(~0u, v, lane); }
template <class T> BRICK_DEVICE T shuffle_xor(T v, int mask) { return __shfl_xor_sync(~0u, v, mask); }

struct half {
    __half bits;
    half() = default;
    BRICK_DEVICE half(float v) : bits(__float2half_rn(v)) {}
    BRICK_DEVICE operator float() const { return __half2float(bits); }
};
struct bfloat {
    __nv_bfloat16 bits;
    bfloat() = default;
    BRICK_DEVICE bfloat(float v) : bits(__float2bfloat16_rn(v)) {}
    BRICK_DEVICE operator float() const { return __bfloat162float(bits); }
};

}  // namespace brick
#endif

namespace brick {

BRICK_DEVICE int lane() { return thread() % 32; }
BRICK_DEVICE int warp() { return thread() / 32; }
BRICK_DEVICE int warps() { return threads() / 32; }

// A box of a node's output, one entry per dimension, half open.
struct Step {
    const int* lo;
    const int* hi;
};

// N elements that are loaded and stored together; N · sizeof(T) is a power of two of at most 16.
template <class T, int N> struct alignas(N * sizeof(T)) Vector {
    T v[N];
};
template <int N, class T> BRICK_DEVICE Vector<T, N> load(const T* p) { return *reinterpret_cast<const Vector<T, N>*>(p); }
template <int N, class T> BRICK_DEVICE void store(T* p, const Vector<T, N>& v) { *reinterpret_cast<Vector<T, N>*>(p) = v; }

}  // namespace brick
