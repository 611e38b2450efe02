// Accesses of shared memory by two threads, one of them writing, that no barrier parts.
#pragma once

#include <vector>

#include "fibers.hpp"
#include "numbers.hpp"

namespace ptx {

// How many barriers of the block and of its warp a thread has passed: equal numbers are the same barrier.
struct Moment {
    u32 block = 0, warp = 0;
};

struct Access {
    int thread = -1;
    Moment when;
    bool before(int other, Moment now) const {
        return thread < 0 || thread == other || when.block < now.block ||
               (thread / 32 == other / 32 && when.warp < now.warp);
    }
};

// The last write of a place, the last read, and the last read by another warp than that.
struct Cell {
    Access write, read, apart;
};

struct Races {
    std::vector<Cell> cells;

    void begin(size_t bytes) { cells.assign(bytes, {}); }

    // Of words where there are whole ones, else of a byte. The thread that it should have waited for, or -1.
    int note(u32 at, u32 bytes, bool writes, int thread, Moment now) {
        for (u32 k = 0; k < bytes; k += 4) {
            Cell& c = cells[at + k];
            if (!c.write.before(thread, now)) return c.write.thread;
            if (writes) {
                if (!c.read.before(thread, now)) return c.read.thread;
                if (!c.apart.before(thread, now)) return c.apart.thread;
                c.write = {thread, now};
            } else {
                if (c.read.thread >= 0 && c.read.thread / 32 != thread / 32) c.apart = c.read;
                c.read = {thread, now};
            }
        }
        return -1;
    }
};

}  // namespace ptx
