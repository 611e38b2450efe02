// How blocks run: what fibers.hpp declares.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "fibers.hpp"

namespace brick::host {

#if BRICK_WARP == 1
BRICK_BLOCKS Fiber& me() {
    static thread_local Fiber fiber{};
    return fiber;
}
#endif

[[noreturn]] BRICK_BLOCKS void die(const char* text) {
    fprintf(stderr, "brickrt on the host: %s (block %d, thread %d)\n", text, now().block, me().thread);
    abort();
}

BRICK_BLOCKS void pass() {
    Block& b = now();
    if (b.head == b.tail) die("the threads of a block wait at different barriers, or some have returned");
    Fiber& next = b.fiber(b.ready[b.head++ % b.ready.size()]);
    if (&next != &me()) jump(me().at, next.at);
}

BRICK_BLOCKS void wait(Barrier& barrier, int threads) {
    if ((int)barrier.waiting.size() + 1 < threads) {
        barrier.waiting.push_back(me().thread);
        pass();
        return;
    }
    for (int thread : barrier.waiting) now().push(thread);
    barrier.waiting.clear();
}

BRICK_BLOCKS void yield() {
    std::this_thread::yield();
    if (BRICK_WARP == 1) return;
    now().push(me().thread);
    pass();
}

inline void fiber_main() {
    Block& b = now();
    b.body(b.about);
    if (--b.left == 0) jump(me().at, b.home);
    pass();
}

// ---- blocks

inline void prepare_block(Block& b, int block, int blocks, int threads, long long shared) {
    b.threads = b.left = threads;
    b.block = block;
    b.blocks = blocks;
    b.room.resize(shared + 64);
    memset(b.room.begin(), 0xff, b.room.size());  // NaN, so that nobody reads what was not written
    b.shared = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(b.room.begin()) + 63) / 64 * 64);
}

inline void run_block(Block& b) {
#if BRICK_WARP == 1
    me() = Fiber{&b, {}, 0, 0};
    b.body(b.about);
#else
    if (b.threads % BRICK_WARP) abort();
    if (b.capacity < b.threads) {
        free(b.stacks);
        b.stacks = static_cast<char*>(aligned_alloc(STACK, b.threads * STACK));
        b.capacity = b.threads;
    }
    b.warps.resize(b.threads / BRICK_WARP);
    b.ready.resize(b.threads + 1);
    b.head = b.tail = 0;
    for (auto& words : b.exchange) {
        words.clear();
        words.resize(b.threads);
    }
    for (int t = 0; t < b.threads; ++t) {
        b.fiber(t) = Fiber{&b, {}, t, 0};
        prepare(b.fiber(t).at, b.stacks + t * STACK, fiber_main);
        if (t) b.push(t);
    }
    jump(b.home, b.fiber(0).at);
#endif
}

// Blocks whose stacks may be used again.
struct Pool {
    std::mutex lock;
    std::vector<Block*> free;

    Block* take() {
        std::lock_guard<std::mutex> locked(lock);
        if (free.empty()) return new Block;
        Block* block = free.back();
        free.pop_back();
        return block;
    }
    void give(Block* block) {
        std::lock_guard<std::mutex> locked(lock);
        free.push_back(block);
    }
};
static Pool pool;

BRICK_BLOCKS void run_blocks(int grid, int threads, long long shared, int workers, void (*body)(const void*), const void* about) {
    std::atomic<int> next{0};
    auto work = [&] {
        Block* block = pool.take();
        block->body = body;
        block->about = about;
        for (int k; (k = next++) < grid;) {
            prepare_block(*block, k, grid, threads, shared);
            run_block(*block);
        }
        pool.give(block);
    };
    std::vector<std::thread> others;
    for (int k = 1; k < workers && k < grid; ++k) others.emplace_back(work);
    work();
    for (auto& other : others) other.join();
}

}  // namespace brick::host
