// The functions and macros that all device sources are written with, so that two compilers take them. On a GPU they are
// CUDA's; with BRICK_FUSED defined, tensors may lie in shared memory; with BRICK_HOST defined, a header of the tests defines them for a host compiler, where the threads of a block
// take turns.
#pragma once

#ifdef BRICK_HOST
#include "portable_host.hpp"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BRICK_DEVICE __device__ __forceinline__
#define BRICK_FUNCTION __device__ __noinline__
// A kernel of blocks of `THREADS` threads, at least `BLOCKS` of them on a multiprocessor. Its arguments are a Context,
// the range of tasks `first` … `first + count` − 1, the number of the launch, and the scratch of its first block. The
// context is passed by value: so it lies in constant memory, where instructions have it as an operand.
#define BRICK_KERNEL(name, Context, THREADS, BLOCKS)                                                           \
    BRICK_DEVICE void name##_block(const Context* c, int first, int count, int launch, int slot);              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                              \
        name(const __grid_constant__ Context context, int first, int count, int launch, int slot) {            \
        name##_block(&context, first, count, launch, slot);                                                    \
    }                                                                                                          \
    BRICK_DEVICE void name##_block(const Context* c, int first, int count, int launch, int slot)
// The dynamic shared memory of the block.
#define BRICK_SHARED(name) extern __shared__ __align__(16) char name[]

namespace brick {

constexpr int WARP = 32;
BRICK_DEVICE int thread() { return threadIdx.x; }
BRICK_DEVICE int threads() { return blockDim.x; }
BRICK_DEVICE int block() { return blockIdx.x; }
BRICK_DEVICE int blocks() { return gridDim.x; }
BRICK_DEVICE void sync() { __syncthreads(); }
BRICK_DEVICE void warp_sync() { __syncwarp(); }
template <class T> BRICK_DEVICE T shuffle(T v, int lane) { return __shfl_sync(~0u, v, lane); }
template <class T> BRICK_DEVICE T shuffle_xor(T v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
BRICK_DEVICE unsigned ballot(bool v) { return __ballot_sync(~0u, v); }
BRICK_DEVICE int first_bit(unsigned v) { return __ffs(v) - 1; }  // of a number that is not 0

// Words that several blocks read and write, at device scope.
BRICK_DEVICE unsigned load_relaxed(const unsigned* p) {
    unsigned v;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
BRICK_DEVICE unsigned long long load_relaxed(const unsigned long long* p) {
    unsigned long long v;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
BRICK_DEVICE unsigned load_acquire(const unsigned* p) {
    unsigned v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
BRICK_DEVICE void store_release(unsigned* p, unsigned v) {
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Stores a word that the host reads while the kernel runs, or after it has failed.
BRICK_DEVICE void store_to_host(unsigned long long* p, unsigned long long v) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
BRICK_DEVICE void fence_system() { __threadfence_system(); }
template <class T> BRICK_DEVICE bool compare_and_swap(T* p, T expected, T wanted) {
    return atomicCAS(p, expected, wanted) == expected;
}
BRICK_DEVICE unsigned long long fetch_add(unsigned long long* p, unsigned long long v) { return atomicAdd(p, v); }
// Adds to a word, ordered against others that do (acquire and release): what the thread did before is visible to those
// that add later.
BRICK_DEVICE unsigned long long fetch_add_in_order(unsigned long long* p, unsigned long long v) {
    unsigned long long seen;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(seen) : "l"(__cvta_generic_to_global(p)), "l"(v) : "memory");
    return seen;
}
BRICK_DEVICE unsigned long long fetch_max(unsigned long long* p, unsigned long long v) { return atomicMax(p, v); }
// Loads a word that nobody writes while kernels run, through caches that are not kept coherent.
template <class T> BRICK_DEVICE T read_only(const T* p) { return __ldg(p); }
BRICK_DEVICE char* read_only(char* const* p) { return (char*)__ldg((const unsigned long long*)p); }
BRICK_DEVICE void nanosleep(unsigned ns) { __nanosleep(ns); }
BRICK_DEVICE long long globaltimer() {  // ns
    long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// Does nothing on a GPU, which stops at addresses that are not multiples of the access's size; on the host it checks
// them.
template <int BYTES> BRICK_DEVICE void check_aligned(const void*) {}

// Begins to copy 16 bytes to shared memory, asynchronously: the first `bytes` of them from `from`, then zeros. What
// lies in shared memory itself is copied at once, all of it or nothing.
BRICK_DEVICE void copy_async16(void* to, const void* from, int bytes) {
#ifdef BRICK_FUSED
    if (__isShared(from)) {
        *static_cast<uint4*>(to) = bytes ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
        return;
    }
#endif
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes));
}
BRICK_DEVICE void copy_async8(void* to, const void* from) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(from));
}
// Ends a group of copies; `copy_wait<N>` waits until all but the last N groups of this thread have arrived.
BRICK_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> BRICK_DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Loads four matrices of 8 rows of 16 bytes from shared memory: lane l gives the address of row l % 8 of matrix l / 8,
// and gets word l % 4 of row l / 4 of each. All lanes of the warp call it together.
BRICK_DEVICE void load_matrices(unsigned (&v)[4], const void* row) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared));
}

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

BRICK_DEVICE int lane() { return thread() % WARP; }
BRICK_DEVICE int warp() { return thread() / WARP; }
BRICK_DEVICE int warps() { return threads() / WARP; }

// The box of a node's output that a step computes: [lo, hi) per dimension.
struct Step {
    const int* lo;
    const int* hi;
};

// N elements that are loaded and stored together; N · sizeof(T) is a power of two of at most 16.
template <class T, int N> struct alignas(N * sizeof(T)) Vector {
    T v[N];
};
template <int N, class T> BRICK_DEVICE Vector<T, N> load(const T* p) {
    check_aligned<N * sizeof(T)>(p);
    return *reinterpret_cast<const Vector<T, N>*>(p);
}
template <int N, class T> BRICK_DEVICE void store(T* p, const Vector<T, N>& v) {
    check_aligned<N * sizeof(T)>(p);
    *reinterpret_cast<Vector<T, N>*>(p) = v;
}

// Tells the compiler that a pointer is to global memory, where tensors lie nowhere else.
template <class T> BRICK_DEVICE T* global(T* p) {
#if !defined(BRICK_HOST) && !defined(BRICK_FUSED)
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

// Tells it that one is to shared memory.
template <class T> BRICK_DEVICE T* in_shared(T* p) {
#ifndef BRICK_HOST
    __builtin_assume(__isShared(p));
#endif
    return p;
}

// As `store`, to where tensors lie and in a single access: the compiler splits a plain store where a conditional one is
// next to it.
#ifdef BRICK_HOST
template <class T, int N> inline void store_global(T* p, const Vector<T, N>& v) { store(p, v); }
#else
template <class T, int N> BRICK_DEVICE void store_global(T* p, const Vector<T, N>& v) {
    constexpr int BYTES = N * sizeof(T);
    if constexpr (BYTES < 8) {
        store(p, v);
    } else {
        unsigned w[BYTES / 4];
        memcpy(w, &v, BYTES);
#ifdef BRICK_FUSED
#define BRICK_STORE "st"
        const T* const to = p;
#else
#define BRICK_STORE "st.global"
        const size_t to = __cvta_generic_to_global(p);
#endif
        if constexpr (BYTES == 8)
            asm volatile(BRICK_STORE ".v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
        else
            asm volatile(BRICK_STORE ".v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                         : "memory");
#undef BRICK_STORE
    }
}
#endif

}  // namespace brick
