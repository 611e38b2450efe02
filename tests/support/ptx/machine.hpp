// What PTX programs run on: blocks of fibers, memory whose accesses are checked, copies that arrive late.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "fibers.hpp"
#include "numbers.hpp"
#include "races.hpp"

namespace ptx {

namespace host = brick::host;

// What became of a range's bytes in a launch. Of large ones, weights for the most part, races are not looked for.
enum Seen : u8 { WRITTEN = 1, READ_ONLY = 2 };
constexpr u64 MOST_TRACED = 1 << 20;
struct Marks {
    std::vector<u8> seen;
    Races races;
    explicit Marks(u64 bytes) : seen(bytes) {
        if (bytes <= MOST_TRACED) races.begin(bytes);
    }
};

// An allocation [lo, hi) that kernels may touch.
struct Range {
    u64 lo, hi;
    Marks* marks;
};

// The variables of the text.
extern const Range variables[];
extern const int variable_count;

extern "C" {
Range* ptx_ranges = nullptr;  // by address, apart from each other
long long ptx_range_count = 0;
}

[[noreturn]] __attribute__((noinline, cold)) inline void die(const char* text, const char* what, u64 at) {
    fprintf(stderr, "PTX: %s: %s: %#llx (block %d, thread %d)\n", text, what, (unsigned long long)at, host::now().block,
            host::me().thread);
    fflush(stderr);
    abort();
}

// ---- where things lie

// Shared memory begins at an address that is a multiple of no more than the text says.
constexpr u32 SHARED_START = 16;

struct Copy {
    char* to;
    const char* from;
    u32 bytes, valid;
    const char* text;
};

// Of a thread.
struct Thread {
    std::vector<Copy> copies;    // not there yet
    std::vector<size_t> groups;  // where each one ends in `copies`
    unsigned exchanges = 0;
    Moment now;
    void begin() { copies.clear(), groups.clear(), exchanges = 0, now = {}; }
};
struct Machine {
    Thread threads[1024];
    u64 words[2][1024][8];  // that the lanes of a warp show each other, in two sets that take turns
    const char* shown[2][1024];
    u32 shared = 0;  // where shared memory ends
    Clocks* clocks = nullptr;
    Races races;
};
inline Machine& machine() {
    static thread_local Machine* one = new Machine;
    return *one;
}
inline Thread& self() { return machine().threads[host::me().thread]; }
inline Who me() {
    const Clocks& clocks = *machine().clocks;
    const int block = host::now().block;
    return {block, host::me().thread, clocks.own[block], self().now, &clocks.known[block]};
}

inline bool in_stack(u64 at, u32 bytes) {
    const u64 stack = reinterpret_cast<u64>(&host::me());
    return at >= stack && at + bytes <= stack + host::STACK;
}
inline bool in_shared(u64 at, u32 bytes) {
    const u64 start = reinterpret_cast<u64>(host::now().shared);
    return at >= start && at + bytes <= start + machine().shared;
}
inline const Range* range_of(u64 at, u32 bytes) {
    static thread_local const Range* last = nullptr;
    if (last >= ptx_ranges && last < ptx_ranges + ptx_range_count && at >= last->lo && at + bytes <= last->hi) return last;
    const Range *first = ptx_ranges, *end = first + ptx_range_count;
    const Range* next = std::upper_bound(first, end, at, [](u64 at, const Range& r) { return at < r.lo; });
    if (next == first || at + bytes > next[-1].hi || at + bytes < at) return nullptr;
    return last = next - 1;
}

inline bool in_variables(u64 at, u32 bytes) {
    return std::any_of(variables, variables + variable_count,
                       [=](const Range& r) { return at >= r.lo && at + bytes <= r.hi; });
}

// ---- addresses that were checked

inline char* in_order(u64 at, u32 bytes, bool writes, const char* text) {
    const Access* other = machine().races.note(at, bytes, writes, me());
    if (other) die(text, "no barrier after another thread's access of shared memory, thread", other->thread);
    return host::now().shared + at;
}

enum Space { GENERIC, GLOBAL, CONSTANT, SHARED, LOCAL, PARAM };
// READ_ONCE: from memory that nobody writes while the kernel runs; IN_ORDER: in a way that makes no race.
enum Way { READ, WRITE, READ_ONCE, IN_ORDER };

inline void mark(const Range* range, u64 at, u32 bytes, Way way, const char* text) {
    const u64 start = at - range->lo;
    Races& races = range->marks->races;
    if (way != IN_ORDER && !races.cells.empty())
        if (const Access* other = races.note_alone(start, bytes, way == WRITE, me()))
            die(text, "nothing orders this after another access of global memory, of block", other->block);
    const bool writes = way == WRITE || way == IN_ORDER;
    const u8 bad = writes ? READ_ONLY : WRITTEN, mine = writes ? WRITTEN : READ_ONLY;
    if (way == READ) return;
    for (u8* seen = range->marks->seen.data() + start; bytes--; ++seen) {
        if (__atomic_load_n(seen, __ATOMIC_RELAXED) & bad) die(text, "memory is read as constant and written in one launch", at);
        if (!(*seen & mine)) __atomic_fetch_or(seen, mine, __ATOMIC_RELAXED);
    }
}
template <Space SPACE> __attribute__((noinline)) char* checked(u64 at, u32 bytes, u32 align, Way way, const char* text) {
    if (at % align) die(text, "the address is not aligned", at);
    if (SPACE == SHARED) {
        if (at < SHARED_START || at + bytes > machine().shared) die(text, "outside of shared memory", at);
        return in_order(at, bytes, way == WRITE, text);
    }
    if ((SPACE == LOCAL || SPACE == GENERIC) && in_stack(at, bytes)) return reinterpret_cast<char*>(at);
    if (SPACE == GENERIC && in_shared(at, bytes))
        return in_order(at - reinterpret_cast<u64>(host::now().shared), bytes, way == WRITE, text);
    const Range* range = SPACE == LOCAL ? nullptr : range_of(at, bytes);
    if (!range && SPACE != LOCAL && in_variables(at, bytes)) return reinterpret_cast<char*>(at);
    if (!range) die(text, SPACE == LOCAL ? "outside of local memory" : "outside of all allocations", at);
    mark(range, at, bytes, way, text);
    return reinterpret_cast<char*>(at);
}
template <Space SPACE> inline char* place(u64 at, u32 bytes, u32 align, Way way, const char* text) {
    if (SPACE == PARAM || SPACE == CONSTANT) {
        if (at % align) die(text, "the address is not aligned", at);
        return reinterpret_cast<char*>(at);
    }
    return checked<SPACE>(at, bytes, align, way, text);
}

// ---- loads and stores

template <class T, int N> struct Several {
    T v[N];
};
template <Space SPACE, class T, int N> inline Several<T, N> load(u64 at, Way way, const char* text) {
    Several<T, N> v;
    memcpy(&v, place<SPACE>(at, sizeof v, sizeof v, way, text), sizeof v);
    return v;
}
template <Space SPACE, class T, int N> inline void store(u64 at, const Several<T, N>& v, const char* text) {
    memcpy(place<SPACE>(at, sizeof v, sizeof v, WRITE, text), &v, sizeof v);
}

// In the order that memory models know.
template <Space SPACE, class T> inline T load_ordered(u64 at, int order, const char* text) {
    const T v = __atomic_load_n(reinterpret_cast<T*>(place<SPACE>(at, sizeof(T), sizeof(T), IN_ORDER, text)), order);
    if (order == __ATOMIC_ACQUIRE) machine().clocks->acquire(host::now().block, at);
    return v;
}
template <Space SPACE, class T> inline void store_ordered(u64 at, T v, int order, const char* text) {
    T* p = reinterpret_cast<T*>(place<SPACE>(at, sizeof(T), sizeof(T), IN_ORDER, text));
    if (order == __ATOMIC_RELEASE) machine().clocks->release(host::now().block, at);
    __atomic_store_n(p, v, order);
}
template <Space SPACE, class T, class F> inline T atomic(u64 at, int order, const char* text, F next) {
    T* p = reinterpret_cast<T*>(place<SPACE>(at, sizeof(T), sizeof(T), IN_ORDER, text));
    if (order == __ATOMIC_ACQ_REL) machine().clocks->release(host::now().block, at);
    T seen = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &seen, (T)next(seen), false, order, __ATOMIC_RELAXED)) {
    }
    if (order == __ATOMIC_ACQ_REL) machine().clocks->acquire(host::now().block, at);
    return seen;
}

// ---- copies behind the back of the thread: what they write is unknown until they are waited for

inline void copy_async(u32 to, u64 from, u32 bytes, u32 valid, const char* text) {
    char* const place = checked<SHARED>(to, bytes, bytes, WRITE, text);
    if (from % bytes) die(text, "the address is not aligned", from);
    if (valid > bytes) die(text, "more bytes than are copied", valid);
    const char* source = valid ? checked<GLOBAL>(from, valid, 1, READ, text) : nullptr;
    memset(place, 0xff, bytes);
    self().copies.push_back({place, source, bytes, valid, text});
}
inline void copies_arrive(size_t count) {
    auto& copies = self().copies;
    for (size_t k = 0; k < count; ++k) {
        in_order(copies[k].to - host::now().shared, copies[k].bytes, true, copies[k].text);
        memset(copies[k].to, 0, copies[k].bytes);
        memcpy(copies[k].to, copies[k].from, copies[k].valid);
    }
    copies.erase(copies.begin(), copies.begin() + count);
}
inline void copy_commit() { self().groups.push_back(self().copies.size()); }
// Until no more than the last `left` groups are under way.
inline void copy_wait(size_t left) {
    auto& groups = self().groups;
    if (groups.size() <= left) return;
    const size_t gone = groups.size() - left, count = groups[gone - 1];
    copies_arrive(count);
    groups.erase(groups.begin(), groups.begin() + gone);
    for (size_t& end : groups) end -= count;
}
inline void copy_wait_all() {
    copies_arrive(self().copies.size());
    self().groups.clear();
}

// ---- blocks

inline void block_barrier() {
    host::wait(host::now().all, host::now().threads);
    ++self().now.block;
}
inline u64 globaltimer() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// What a launch knows of its memory while it runs.
struct Launch {
    std::vector<std::unique_ptr<Marks>> marks;
    Clocks clocks;
    explicit Launch(int grid) : clocks(grid) {
        for (Range* r = ptx_ranges; r < ptx_ranges + ptx_range_count; ++r)
            r->marks = marks.emplace_back(new Marks(r->hi - r->lo)).get();
    }
};

// `own`: bytes of shared memory that the text itself asks for.
template <class F> void run_grid(int grid, int threads, int most, long long shared, long long own, int workers, F body) {
    if (most && threads > most) fprintf(stderr, "PTX: a block has more threads than the text allows\n"), abort();
    Launch launch(grid);
    const long long bytes = SHARED_START + own + shared;
    host::run_grid(grid, threads, bytes, workers, [&] {
        machine().shared = bytes;
        machine().clocks = &launch.clocks;
        if (host::me().thread == 0) machine().races.begin(bytes);
        self().begin();
        body();
    });
}

}  // namespace ptx
