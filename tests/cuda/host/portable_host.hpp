// What portable.cuh needs of a host compiler: a block's threads are fibers that take turns at barriers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#define BRICK_DEVICE inline
#define BRICK_FUNCTION inline
#define BRICK_CONST static const
#define __restrict__
#define BRICK_SHARED(name) char* name = brick::host::now().shared

namespace brick::host {

// One fiber per thread of the block that runs on this OS thread.
struct Fiber {
    ucontext_t at{};
    std::unique_ptr<char[]> stack;
    bool done = false;
};

struct Barrier {
    int arrived = 0;
    unsigned generation = 0;
};

struct Block {
    std::vector<Fiber> fibers;
    ucontext_t home{};
    int current = 0, threads = 0, block = 0, blocks = 0, left = 0;
    char* shared = nullptr;
    std::function<void()> body;
    Barrier all;
    std::vector<Barrier> warps;
    std::vector<uint64_t> exchange;  // one word per thread
};

inline Block*& here() {
    static thread_local Block* block = nullptr;
    return block;
}
inline Block& now() { return *here(); }

// Lets the next unfinished thread of the block go on.
inline void turn() {
    Block& b = now();
    const int from = b.current;
    do b.current = (b.current + 1) % b.threads;
    while (b.fibers[b.current].done);
    if (b.current != from) swapcontext(&b.fibers[from].at, &b.fibers[b.current].at);
}

inline void wait(Barrier& barrier, int threads) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    while (barrier.generation == generation) turn();
}

inline void fiber_main() {
    Block& b = now();
    b.body();
    b.fibers[b.current].done = true;
    if (--b.left == 0) {
        setcontext(&b.home);
    }
    const int from = b.current;
    (void)from;
    do b.current = (b.current + 1) % b.threads;
    while (b.fibers[b.current].done);
    setcontext(&b.fibers[b.current].at);
}

// Runs `body` once per thread of one block.
inline void run_block(int block, int blocks, int threads, char* shared, std::function<void()> body) {
    constexpr size_t STACK = 256 << 10;
    static thread_local Block b;
    here() = &b;
    if ((int)b.fibers.size() < threads) b.fibers.resize(threads);
    b.threads = b.left = threads;
    b.block = block;
    b.blocks = blocks;
    b.shared = shared;
    b.body = std::move(body);
    b.all = {};
    b.warps.assign((threads + 31) / 32, {});
    b.exchange.assign(threads, 0);
    for (int t = 0; t < threads; ++t) {
        Fiber& f = b.fibers[t];
        if (!f.stack) f.stack.reset(new char[STACK]);
        f.done = false;
        getcontext(&f.at);
        f.at.uc_stack.ss_sp = f.stack.get();
        f.at.uc_stack.ss_size = STACK;
        f.at.uc_link = nullptr;
        makecontext(&f.at, fiber_main, 0);
    }
    b.current = 0;
    swapcontext(&b.home, &b.fibers[0].at);
}

}  // namespace brick::host

// A kernel as a C function that runs all its blocks, one after the other.
#define BRICK_KERNEL(name, Context, THREADS, BLOCKS)                                                       \
    static void name##_block(const Context* c, int first, int count);                                      \
    extern "C" void name(int grid, int threads, long long shared, const void* c, int first, int count) {   \
        std::unique_ptr<char[]> memory(new char[shared + 64]);                                             \
        char* aligned = (char*)(((uintptr_t)memory.get() + 63) / 64 * 64);                                 \
        for (int block = 0; block < grid; ++block)                                                         \
            brick::host::run_block(block, grid, threads, aligned, [=] {                                    \
                name##_block(static_cast<const Context*>(c), first, count);                                \
            });                                                                                            \
    }                                                                                                      \
    static void name##_block(const Context* c, int first, int count)

namespace brick {

inline int thread() { return host::now().current; }
inline int threads() { return host::now().threads; }
inline int block() { return host::now().block; }
inline int blocks() { return host::now().blocks; }
inline void sync() { host::wait(host::now().all, host::now().threads); }
inline void warp_sync() { host::wait(host::now().warps[thread() / 32], 32); }

template <class T> inline T shuffle(T v, int lane) {
    static_assert(sizeof(T) <= 8);
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    host::now().exchange[thread()] = word;
    warp_sync();
    word = host::now().exchange[thread() / 32 * 32 + lane % 32];
    warp_sync();
    memcpy(&v, &word, sizeof v);
    return v;
}
template <class T> inline T shuffle_xor(T v, int mask) { return shuffle(v, thread() % 32 ^ mask); }

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
