// Blocks on the host: the threads of a block are fibers of one OS thread, which take turns where they wait. Blocks run
// on one or several OS threads, each to its end before the next: enough for kernels whose blocks wait for others that
// have begun. With BRICK_WARP=1 a block is one thread, no fiber, as a race detector wants it. What takes long to compile
// is in blocks.hpp: part of this header, or with BRICK_BLOCKS_APART in a library that all kernels share.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <stdlib.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

#ifndef BRICK_WARP
#define BRICK_WARP 32
#endif

namespace brick::host {

constexpr size_t STACK = 256 << 10;  // a power of two: a fiber knows itself by its stack pointer

// ---- switching stacks

#if defined(__x86_64__)
struct Point {
    void* sp;
};
asm(R"(
    .text
    .local brick_switch
    .type brick_switch, @function
brick_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
extern "C" void brick_switch(Point* from, Point* to);
inline void jump(Point& from, Point& to) { brick_switch(&from, &to); }
inline void prepare(Point& point, char* stack, void (*entry)()) {
    void** top = reinterpret_cast<void**>(stack + STACK - 64);  // entry begins 8 bytes off a multiple of 16
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    point.sp = top - 6;
}
#elif defined(__aarch64__)
struct Point {
    void* sp;
};
asm(R"(
    .text
    .local brick_switch
    .type brick_switch, %function
brick_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    ldr x2, [x1]
    mov sp, x2
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
extern "C" void brick_switch(Point* from, Point* to);
inline void jump(Point& from, Point& to) { brick_switch(&from, &to); }
inline void prepare(Point& point, char* stack, void (*entry)()) {
    void** frame = reinterpret_cast<void**>(stack + STACK - 64 - 160);
    memset(frame, 0, 160);
    frame[11] = reinterpret_cast<void*>(entry);  // x30
    point.sp = frame;
}
#else
struct Point {
    ucontext_t at;
};
inline void jump(Point& from, Point& to) { swapcontext(&from.at, &to.at); }
inline void prepare(Point& point, char* stack, void (*entry)()) {
    getcontext(&point.at);
    point.at.uc_stack.ss_sp = stack + 4096;  // behind the fiber itself
    point.at.uc_stack.ss_size = STACK - 4096;
    point.at.uc_link = nullptr;
    makecontext(&point.at, entry, 0);
}
#endif

// ---- the threads of a block

// What is needed of std::vector, for elements that may be moved byte by byte; all kernels read this header, and
// would read C++'s longer than themselves.
template <class T> class List {
  public:
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ~List() { free(at); }

    T& operator[](size_t k) { return at[k]; }
    size_t size() const { return count; }
    T* begin() { return at; }
    T* end() { return at + count; }
    void clear() { count = 0; }
    void push_back(const T& v) {
        if (count == room) reserve(count < 8 ? 16 : 2 * count);
        at[count++] = v;
    }
    // As many elements, the new ones of bytes 0.
    void resize(size_t n) {
        if (n > room) reserve(n);
        if (n > count) memset(static_cast<void*>(at + count), 0, (n - count) * sizeof(T));
        count = n;
    }

  private:
    T* at = nullptr;
    size_t count = 0, room = 0;

    void reserve(size_t n) {
        at = static_cast<T*>(realloc(static_cast<void*>(at), n * sizeof(T)));
        if (!at) abort();
        room = n;
    }
};

struct Block;

// Lies at the beginning of its stack.
struct Fiber {
    Block* block;
    Point at;
    int thread;
    unsigned exchanges;  // in which it took part
};

struct Barrier {
    List<int> waiting;
};

struct Block {
    char* stacks = nullptr;
    int capacity = 0, threads = 0, block = 0, blocks = 0, left = 0;
    List<char> room;  // of shared memory
    char* shared = nullptr;
    void (*body)(const void*) = nullptr;
    const void* about = nullptr;  // what `body` is called with
    Point home{};
    Barrier all;
    List<Barrier> warps;
    List<int> ready;  // a ring of the threads that can go on
    size_t head = 0, tail = 0;
    List<uint64_t> exchange[2];  // a word per thread, twice: the next may begin while some still read the last

    Fiber& fiber(int thread) { return *reinterpret_cast<Fiber*>(stacks + thread * STACK); }
    void push(int thread) { ready[tail++ % ready.size()] = thread; }
};

#ifdef BRICK_BLOCKS_APART
#define BRICK_BLOCKS
#else
#define BRICK_BLOCKS inline
#endif

#if BRICK_WARP == 1
BRICK_BLOCKS Fiber& me();
#else
inline Fiber& me() {
    return *reinterpret_cast<Fiber*>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~(STACK - 1));
}
#endif
inline Block& now() { return *me().block; }

[[noreturn]] BRICK_BLOCKS void die(const char* text);
// Lets the next thread of the block that can go on do so.
BRICK_BLOCKS void pass();
BRICK_BLOCKS void wait(Barrier& barrier, int threads);
// Lets the block's other threads go on, and other OS threads.
BRICK_BLOCKS void yield();

// Runs a kernel's blocks on `workers` OS threads, this one among them; each thread of each calls `body(about)`.
BRICK_BLOCKS void run_blocks(int grid, int threads, long long shared, int workers, void (*body)(const void*), const void* about);
template <class F> inline void run_grid(int grid, int threads, long long shared, int workers, const F& body) {
    const auto call = [](const void* f) { (*static_cast<const F*>(f))(); };
    run_blocks(grid, threads, shared, workers, call, &body);
}

}  // namespace brick::host

#ifndef BRICK_BLOCKS_APART
#include "blocks.hpp"
#endif
