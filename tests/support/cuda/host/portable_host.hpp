// What portable.cuh needs of a host compiler.
#pragma once

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's math.h: what C++ adds to it takes a kernel longer to read than the kernel
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "fibers.hpp"

#define BRICK_DEVICE inline
#define BRICK_FUNCTION inline
#define __restrict__
#define BRICK_SHARED(name) char* name = brick::host::now().shared

// A kernel as a C function that runs all its blocks.
#define BRICK_KERNEL(name, Context, THREADS, BLOCKS)                                                             \
    static void name##_block(const Context* c, int first, int count, int launch, int slot);                      \
    extern "C" void name(int grid, int threads, long long shared, const void* c, int first, int count, int launch, \
                         int slot, int workers) {                                                                \
        brick::host::run_grid(grid, threads, shared, workers, [=] {                                              \
            name##_block(static_cast<const Context*>(c), first, count, launch, slot);                            \
        });                                                                                                      \
    }                                                                                                            \
    static void name##_block(const Context* c, int first, int count, int launch, int slot)

namespace brick {

constexpr int WARP = BRICK_WARP;
inline int thread() { return host::me().thread; }
inline int threads() { return host::now().threads; }
inline int block() { return host::now().block; }
inline int blocks() { return host::now().blocks; }
inline void sync() {
    if (threads() > 1) host::wait(host::now().all, threads());
}
inline void warp_sync() {
    if (WARP > 1) host::wait(host::now().warps[thread() / WARP], WARP);
}

// Gives every thread of a warp the words of all: those of the lanes, in order.
inline const uint64_t* exchange(uint64_t word) {
    auto& words = host::now().exchange[host::me().exchanges++ % 2];
    words[thread()] = word;
    warp_sync();
    return words.begin() + thread() / WARP * WARP;
}
template <class T> inline T shuffle(T v, int lane) {
    static_assert(sizeof(T) <= 8);
    if (WARP == 1) return v;
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    word = exchange(word)[lane % WARP];
    memcpy(&v, &word, sizeof v);
    return v;
}
template <class T> inline T shuffle_xor(T v, int mask) { return shuffle(v, thread() % WARP ^ mask); }
inline unsigned ballot(bool v) {
    if (WARP == 1) return v;
    const uint64_t* words = exchange(v);
    unsigned bits = 0;
    for (int k = 0; k < WARP; ++k) bits |= (unsigned)words[k] << k;
    return bits;
}
inline void load_matrices(unsigned (&v)[4], const void* row) {
    const uint64_t* rows = exchange(reinterpret_cast<uint64_t>(row));
    const int lane = thread() % WARP;
    for (int k = 0; k < 4; ++k) memcpy(&v[k], reinterpret_cast<const char*>(rows[k * 8 + lane / 4]) + lane % 4 * 4, 4);
}
inline int first_bit(unsigned v) { return __builtin_ctz(v); }

template <class T> inline T load_relaxed(const T* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
template <class T> inline T load_acquire(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> inline void store_release(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
template <class T> inline void store_to_host(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
inline void fence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class T> inline bool compare_and_swap(T* p, T expected, T wanted) {
    return __atomic_compare_exchange_n(p, &expected, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
template <class T> inline T fetch_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
template <class T> inline T fetch_add_in_order(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
template <class T> inline T fetch_max(T* p, T v) {
    T seen = load_relaxed(p);
    while (seen < v && !__atomic_compare_exchange_n(p, &seen, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T> inline T read_only(const T* p) { return *p; }
inline void nanosleep(unsigned) { host::yield(); }
inline long long globaltimer() {  // ns
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

template <int BYTES> inline void check_aligned(const void* p) {
    if (reinterpret_cast<uintptr_t>(p) % BYTES) host::die("an access of several elements is not aligned");
}
inline void copy_async16(void* to, const void* from, int bytes) {
    check_aligned<16>(to);
    check_aligned<16>(from);
    memset(to, 0, 16);
    if (bytes > 0) memcpy(to, from, bytes);
}
inline void copy_async8(void* to, const void* from) {
    check_aligned<8>(to);
    check_aligned<8>(from);
    memcpy(to, from, 8);
}
inline void copy_commit() {}
template <int N> inline void copy_wait() {}

// 16-bit floats, rounded to nearest even.
struct half {
    _Float16 bits;
    half() = default;
    half(float v) : bits((_Float16)v) {}
    operator float() const { return (float)bits; }
};
struct bfloat {
    uint16_t bits;
    bfloat() = default;
    bfloat(float v) {
        uint32_t word;
        memcpy(&word, &v, 4);
        bits = v != v ? 0x7fc0 : (word + 0x7fff + (word >> 16 & 1)) >> 16;
    }
    operator float() const {
        const uint32_t word = (uint32_t)bits << 16;
        float v;
        memcpy(&v, &word, 4);
        return v;
    }
};

}  // namespace brick
