// Accesses of memory by two threads, one of them writing, that nothing puts in an order.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "fibers.hpp"
#include "numbers.hpp"

namespace ptx {

// How many barriers of the block and of its warp a thread has passed: equal numbers are the same barrier.
struct Moment {
    u32 block = 0, warp = 0;
};

// A thread of a block whose clock stands at `clock`, and which knows of other blocks' work up to `known`.
struct Who {
    int block, thread;
    u32 clock;
    Moment when;
    const std::vector<u32>* known;
};

struct Access {
    int block = -1, thread = -1;
    u32 clock = 0;
    Moment when;
    Access() = default;
    Access(const Who& w) : block(w.block), thread(w.thread), clock(w.clock), when(w.when) {}

    bool before(const Who& now) const {
        if (thread < 0) return true;
        if (block != now.block) return now.known && !now.known->empty() && (*now.known)[block] >= clock;
        return thread == now.thread || when.block < now.when.block ||
               (thread / 32 == now.thread / 32 && when.warp < now.when.warp);
    }
    bool near(const Who& w) const { return block == w.block && thread / 32 == w.thread / 32; }
};

// The last write of a place, the last read, and the last read by another warp than that.
struct Cell {
    Access write, read, apart;
};

// Of a piece of memory, by words of 4 bytes; of words that are not written whole, the bytes.
struct Races {
    std::vector<Cell> cells;
    std::atomic_flag busy = ATOMIC_FLAG_INIT;

    void begin(size_t bytes) { cells.assign(bytes, {}); }

    // Whom the thread should have waited for, or null.
    const Access* note(size_t at, u32 bytes, bool writes, const Who& who) {
        for (u32 k = 0; k < bytes; k += 4) {
            Cell& c = cells[at + k];
            if (!c.write.before(who)) return &c.write;
            if (writes) {
                if (!c.read.before(who)) return &c.read;
                if (!c.apart.before(who)) return &c.apart;
                c.write = who;
            } else {
                if (c.read.thread >= 0 && !c.read.near(who)) c.apart = c.read;
                c.read = who;
            }
        }
        return nullptr;
    }
    // Likewise, where several blocks may be at it.
    const Access* note_alone(size_t at, u32 bytes, bool writes, const Who& who) {
        while (busy.test_and_set(std::memory_order_acquire)) {
        }
        const Access* other = note(at, bytes, writes, who);
        busy.clear(std::memory_order_release);
        return other;
    }
};

// What the blocks of a launch know of each other: who acquires a word knows what went before its last release.
struct Clocks {
    std::mutex lock;
    std::vector<std::vector<u32>> known;  // of a block: of each block; none before it acquires
    std::vector<u32> own;
    std::map<u64, std::vector<u32>> released;

    explicit Clocks(int grid) : known(grid), own(grid, 1) {}

    void release(int block, u64 word) {
        std::lock_guard<std::mutex> locked(lock);
        auto& row = row_of(block);
        row[block] = own[block]++;
        join(released[word], row);
    }
    void acquire(int block, u64 word) {
        std::lock_guard<std::mutex> locked(lock);
        auto found = released.find(word);
        if (found != released.end()) join(row_of(block), found->second);
    }

    std::vector<u32>& row_of(int block) {
        if (known[block].empty()) known[block].resize(own.size());
        return known[block];
    }
    static void join(std::vector<u32>& into, const std::vector<u32>& from) {
        into.resize(from.size());
        for (size_t k = 0; k < from.size(); ++k) into[k] = std::max(into[k], from[k]);
    }
};

}  // namespace ptx
