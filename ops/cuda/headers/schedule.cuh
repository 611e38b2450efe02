// How blocks find their tasks: in turn, or by tickets, waiting for what other blocks compute. A program's text includes
// portable.cuh, then has the text of runtime/cuda/kernels/context_header.py (Context and numbers), then includes this.
//
// Tasks are numbered such that each waits only for smaller ones, and tickets are given in that order. So the smallest
// task that is not complete waits for nothing, and the block that holds its ticket is running and comes to it: there is
// no deadlock, however many blocks there are, and no need that all of them run at the same time.
#pragma once

namespace brick {

constexpr unsigned LONGEST_REST = 1024;  // ns between two looks

// The operands and box of one step.
struct Frame {
    char* at[MOST_OPERANDS];
    int lo[MOST_RANK], hi[MOST_RANK];
};

// A task not ready: it waits for deps[at], and before `end` perhaps for others; all before `at` are complete.
struct Held {
    int task, at, end;
};

// What a block keeps in shared memory. Only its first warp touches what is above `task`.
struct Desk {
    Held held[HELD];  // by task
    int holding, over;  // how many; whether all tickets are taken
    unsigned epoch;
    unsigned long long tasks, first, waits, revisits;
    long long* events;  // see `Context::events`
    int task;  // to be run, or -1
    Frame frames[2];
};
static_assert(sizeof(Desk) <= SHARED_BYTES, "Desk");

BRICK_DEVICE unsigned word(unsigned epoch, unsigned state) { return epoch * 4 + state; }

// Ends the run; the first reason stays.
BRICK_DEVICE void stop(const Context* c, int reason, int task, int dep = 0) {
    const unsigned long long why = reason | (unsigned long long)task << 4 | (unsigned long long)dep << 34;
    if (compare_and_swap(c->stop, 0ull, why)) *c->told = why;
}
BRICK_DEVICE bool stopped(const Context* c) { return load_relaxed(c->stop) != 0; }

// Runs the steps of a task: `call(kernel, step, at, shared)` for each, with the whole block. `slot` is the block's
// scratch. The block must be synchronized before, and after it before the desk is used again.
template <class Call>
BRICK_DEVICE void run_steps(const Context* c, int task, int slot, Desk* desk, char* shared, Call call) {
    int turn = 0;  // frames alternate: threads may still read the last one
    for (int k = read_only(c->task_at + task), end = read_only(c->task_at + task + 1); k < end; turn ^= 1) {
        const long long* record = c->records + k;
        const long long sizes = read_only(record + 1);
        const int operands = (int)sizes, rank = (int)(sizes >> 32);
        Frame& frame = desk->frames[turn];
        for (int i = thread(); i < operands; i += threads()) {
            const unsigned long long operand = read_only(record + HEAD_WORDS + i);
            const int base = (int)(operand >> BASE_SHIFT);
            const long long offset = (long long)(operand << (64 - BASE_SHIFT)) >> (64 - BASE_SHIFT);
            frame.at[i] = read_only(c->bases + base) + offset + (base == SCRATCH ? slot * c->scratch_stride : 0);
        }
        for (int i = thread(); i < rank; i += threads()) {
            const long long ends = read_only(record + HEAD_WORDS + operands + i);
            frame.lo[i] = (int)ends;
            frame.hi[i] = (int)(ends >> 32);
        }
        k += HEAD_WORDS + operands + rank;
        sync();
        call((int)read_only(record), Step{frame.lo, frame.hi}, frame.at, shared);
    }
}

BRICK_DEVICE void note_begin(const Desk* desk, int task) {
    if (!desk->events) return;
    long long* row = desk->events + (long long)EVENT_WORDS * task;
    row[0] = block();
    row[1] = globaltimer();
}
BRICK_DEVICE void note_end(const Desk* desk, int task) {
    if (!desk->events) return;
    long long* row = desk->events + (long long)EVENT_WORDS * task;
    row[2] = globaltimer();
    row[3] = desk->waits;
    row[4] = desk->revisits;
}

// Looks at what a task waits for, with a whole warp, from where the last look ended. What the others wrote before they
// published is then visible to the warp, and after the next barrier to the block.
BRICK_DEVICE bool ready(const Context* c, unsigned epoch, Held& held) {
    const unsigned complete = word(epoch, COMPLETE);
    for (; held.at < held.end; held.at += WARP) {
        const int k = held.at + lane();
        const unsigned missing = ballot(k < held.end && load_acquire(c->words + read_only(c->deps + k)) != complete);
        if (missing) {
            held.at += first_bit(missing);
            return false;
        }
    }
    return true;
}

// Takes the next ticket and acquires its task. False where all tickets are taken. `mine` is false where the task was
// started before: to be looked at late, since the answer takes as long as the first look at what the task waits for.
BRICK_DEVICE bool take(const Context* c, int first, int count, int launch, unsigned epoch, Held& held, bool& mine) {
    unsigned ticket = 0;
    if (lane() == 0) ticket = (unsigned)fetch_add(c->tickets + TICKET_WORDS * launch, 1ull);
    ticket = shuffle(ticket, 0);
    if (ticket >= (unsigned)count) return false;
    held.task = first + (int)ticket;
    held.at = read_only(c->dep_offsets + held.task);
    held.end = read_only(c->dep_offsets + held.task + 1);
    unsigned* own = c->words + held.task;
    const unsigned seen = load_relaxed(own), wanted = word(epoch, IN_PROGRESS);
    if (lane() == 0) mine = seen < wanted && compare_and_swap(own, seen, wanted);
    return true;
}

// The oldest held task that is ready, taken from the desk; or -1.
BRICK_DEVICE int revisit(const Context* c, Desk* desk) {
    const unsigned epoch = desk->epoch, complete = word(epoch, COMPLETE);
    const int holding = desk->holding;
    unsigned maybe = 0;  // one look at all of them, without acquiring anything
    for (int from = 0; from < holding; from += WARP) {
        const int k = from + lane();
        maybe |= ballot(k < holding && load_relaxed(c->words + read_only(c->deps + desk->held[k].at)) == complete) << from;
    }
    for (; maybe; maybe &= maybe - 1) {
        const int k = first_bit(maybe);
        Held held = desk->held[k];
        const bool found = ready(c, epoch, held);
        warp_sync();
        if (lane() == 0) {
            desk->held[k] = held;
            if (found) {
                desk->holding = holding - 1;
                for (int later = k; later < holding - 1; ++later) desk->held[later] = desk->held[later + 1];
            }
        }
        warp_sync();
        if (found) return held.task;
    }
    return -1;
}

// The first task of further tickets that is ready; or -1, where no more tickets can be held or had.
BRICK_DEVICE int draw(const Context* c, int first, int count, int launch, Desk* desk) {
    while (desk->holding < HELD && !desk->over) {
        Held held;
        bool mine = true;
        const bool taken = take(c, first, count, launch, desk->epoch, held, mine);
        const bool found = taken && ready(c, desk->epoch, held);
        if (!mine) stop(c, STARTED_TWICE, held.task);
        if (found) return held.task;
        warp_sync();
        if (lane() == 0) {
            if (taken) desk->held[desk->holding++] = held;
            else desk->over = 1;
        }
        warp_sync();
    }
    return -1;
}

// Counts a task that was found after so many looks in vain.
BRICK_DEVICE void note_found(Desk* desk, int task, unsigned looks) {
    const bool passed = desk->holding && desk->held[0].task < task;
    ++(looks ? desk->waits : passed ? desk->revisits : desk->first);
    ++desk->tasks;
}

// The next task for the block, all that it waits for being complete; or -1 at the end. By one warp.
BRICK_DEVICE int pick(const Context* c, int first, int count, int launch, Desk* desk) {
    for (unsigned looks = 0;; ++looks) {
        if (ballot(stopped(c))) return -1;
        int task = revisit(c, desk);
        if (task < 0) task = draw(c, first, count, launch, desk);
        if (task >= 0) {
            warp_sync();
            if (lane() == 0) note_found(desk, task, looks);
            return task;
        }
        if (!desk->holding) return -1;
        if (c->spin_limit && looks >= c->spin_limit) {
            if (lane() == 0) stop(c, HUNG, desk->held[0].task, read_only(c->deps + desk->held[0].at));
            return -1;
        }
        if (lane() == 0) nanosleep(looks < 5 ? 32u << looks : LONGEST_REST);
        warp_sync();
    }
}

BRICK_DEVICE void begin(const Context* c, Desk* desk) {
    desk->tasks = desk->first = desk->waits = desk->revisits = desk->task = 0;
    desk->events = *c->events;
}

// A block has come to its end. The last one begins the launch's next epoch, and tells the host what all have counted.
BRICK_DEVICE void leave(const Context* c, int launch, const Desk* desk) {
    unsigned long long *const tickets = c->tickets + TICKET_WORDS * launch, *const counts = c->counts + COUNTS * launch;
    const unsigned long long mine[COUNTS] = {desk->tasks, desk->first, desk->waits, desk->revisits};
    for (int k = 0; k < COUNTS; ++k) fetch_add(counts + k, mine[k]);
    if ((fetch_add_in_order(tickets + 1, 1ull) + 1) % blocks()) return;
    fetch_max(tickets, (unsigned long long)desk->epoch << 32);
    for (int k = 0; k < COUNTS; ++k) c->told[1 + COUNTS * launch + k] = load_relaxed(counts + k);
}

// Tasks `first` … `first + count` − 1 by tickets: each block runs those whose tickets it gets, when they are ready.
template <class Call>
BRICK_DEVICE void run_by_tickets(const Context* c, int first, int count, int launch, int slot, char* shared, Call call) {
    Desk* desk = reinterpret_cast<Desk*>(shared);
    if (thread() == 0) {
        begin(c, desk);
        desk->holding = desk->over = 0;
        desk->epoch = 1 + (unsigned)(load_relaxed(c->tickets + TICKET_WORDS * launch) >> 32);
    }
    for (;;) {
        if (warp() == 0) {
            warp_sync();
            const int task = pick(c, first, count, launch, desk);
            if (lane() == 0) {
                desk->task = task;
                if (task >= 0) note_begin(desk, task);
            }
        }
        sync();
        const int task = desk->task;
        if (task < 0) break;
        run_steps(c, task, slot + block(), desk, shared + SHARED_BYTES, call);
        sync();
        if (thread() == 0) {
            note_end(desk, task);
            store_release(c->words + task, word(desk->epoch, COMPLETE));
        }
    }
    if (thread() == 0) leave(c, launch, desk);
}

// Tasks `first` … `first + count` − 1 in turn, by launches in which none waits for another.
template <class Call>
BRICK_DEVICE void run_in_turn(const Context* c, int first, int count, int slot, char* shared, Call call) {
    Desk* desk = reinterpret_cast<Desk*>(shared);
    if (thread() == 0) begin(c, desk);
    for (int task = first + block(); task < first + count; task += blocks()) {
        sync();
        if (thread() == 0) {
            desk->task = stopped(c) ? -1 : 0;
            note_begin(desk, task);
        }
        sync();
        if (desk->task < 0) break;
        run_steps(c, task, slot + block(), desk, shared + SHARED_BYTES, call);
        if (desk->events) {
            sync();
            if (thread() == 0) note_end(desk, task);
        }
    }
}

}  // namespace brick
