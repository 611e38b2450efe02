// How blocks find their tasks: in turn, or by tickets, waiting for what other blocks compute. A program's text includes
// portable.cuh, then has the text of runtime/cuda/header.py (Context and numbers), then includes this.
//
// Tasks are numbered such that each waits only for smaller ones, and tickets are given in that order. So the smallest
// task that is not complete waits for nothing, and the block that holds its ticket is running and comes to it: there is
// no deadlock, however many blocks there are, and no need that all of them run at the same time.
#pragma once

namespace brick {

constexpr int HELD = 4;               // tickets of tasks not ready that a block holds before it waits
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
    unsigned long long tasks, first, waits, revisits;
    int task;  // to be run, or -1
    Frame frames[2];
};
static_assert(sizeof(Desk) <= SHARED_BYTES, "Desk");

BRICK_DEVICE unsigned word(const Context* c, unsigned state) { return (unsigned)c->epoch * 4 + state; }

// Ends the run; the first reason stays.
BRICK_DEVICE void stop(const Context* c, int reason, int task, int dep = 0) {
    const unsigned long long why = reason | (unsigned long long)task << 4 | (unsigned long long)dep << 34;
    compare_and_swap(c->stop, 0ull, why);
}
BRICK_DEVICE bool stopped(const Context* c) { return load_relaxed(c->stop) != 0; }

// Runs the steps of a task: `call(kernel, step, at, shared)` for each, with the whole block. `slot` is the block's
// scratch. The block must be synchronized before, and after it before the desk is used again.
template <class Call>
BRICK_DEVICE void run_steps(const Context* c, int task, int slot, Desk* desk, char* shared, Call call) {
    int turn = 0;  // frames alternate: threads may still read the last one
    for (int k = c->task_at[task], end = c->task_at[task + 1]; k < end; turn ^= 1) {
        const long long* record = c->records + k;
        const int operands = (int)record[1], rank = (int)(record[1] >> 32);
        Frame& frame = desk->frames[turn];
        for (int i = thread(); i < operands; i += threads()) {
            const unsigned long long operand = record[HEAD_WORDS + i];
            const int base = (int)(operand >> BASE_SHIFT);
            const long long offset = (long long)(operand << (64 - BASE_SHIFT)) >> (64 - BASE_SHIFT);
            frame.at[i] = c->bases[base] + offset + (base == SCRATCH ? slot * c->scratch_stride : 0);
        }
        for (int i = thread(); i < rank; i += threads()) {
            const long long ends = record[HEAD_WORDS + operands + i];
            frame.lo[i] = (int)ends;
            frame.hi[i] = (int)(ends >> 32);
        }
        sync();
        call((int)record[0], Step{frame.lo, frame.hi}, frame.at, shared);
        k += HEAD_WORDS + operands + rank;
    }
}

BRICK_DEVICE void note_begin(const Context* c, int task) {
    if (!c->events) return;
    long long* row = c->events + (long long)EVENT_WORDS * task;
    row[0] = block();
    row[1] = globaltimer();
}
BRICK_DEVICE void note_end(const Context* c, int task, const Desk* desk) {
    if (!c->events) return;
    long long* row = c->events + (long long)EVENT_WORDS * task;
    row[2] = globaltimer();
    row[3] = desk->waits;
    row[4] = desk->revisits;
}

// Looks at what a task waits for, with a whole warp, from where the last look ended. What the others wrote before they
// published is then visible to the warp, and after the next barrier to the block.
BRICK_DEVICE bool ready(const Context* c, Held& held) {
    const unsigned complete = word(c, COMPLETE);
    for (; held.at < held.end; held.at += WARP) {
        const int k = held.at + lane();
        const unsigned missing = ballot(k < held.end && load_acquire(c->words + c->deps[k]) != complete);
        if (missing) {
            held.at += first_bit(missing);
            return false;
        }
    }
    return true;
}

// Takes the next ticket and acquires its task. False where all tickets are taken. `mine` is false where the task was
// started before: to be looked at late, since the answer takes as long as the first look at what the task waits for.
BRICK_DEVICE bool take(const Context* c, int first, int count, int launch, Held& held, bool& mine) {
    unsigned long long ticket = 0;
    if (lane() == 0) ticket = fetch_add(c->tickets + launch, 1ull);
    ticket = shuffle(ticket, 0);
    if (ticket >> 32 != (unsigned long long)c->epoch) {
        if (lane() == 0) stop(c, OLD_EPOCH, first);
        return false;
    }
    if ((unsigned)ticket >= (unsigned)count) return false;
    held.task = first + (int)ticket;
    held.at = c->dep_offsets[held.task];
    held.end = c->dep_offsets[held.task + 1];
    unsigned* own = c->words + held.task;
    const unsigned seen = load_relaxed(own), wanted = word(c, IN_PROGRESS);
    if (lane() == 0) mine = seen < wanted && compare_and_swap(own, seen, wanted);
    return true;
}

// The oldest held task that is ready, taken from the desk; or -1.
BRICK_DEVICE int revisit(const Context* c, Desk* desk) {
    const unsigned complete = word(c, COMPLETE);
    const int holding = desk->holding;
    unsigned maybe = 0;  // one look at all of them, without acquiring anything
    for (int from = 0; from < holding; from += WARP) {
        const int k = from + lane();
        maybe |= ballot(k < holding && load_relaxed(c->words + c->deps[desk->held[k].at]) == complete) << from;
    }
    for (; maybe; maybe &= maybe - 1) {
        const int k = first_bit(maybe);
        Held held = desk->held[k];
        const bool found = ready(c, held);
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
        const bool taken = take(c, first, count, launch, held, mine);
        const bool found = taken && ready(c, held);
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
            if (lane() == 0) stop(c, HUNG, desk->held[0].task, c->deps[desk->held[0].at]);
            return -1;
        }
        if (lane() == 0) nanosleep(looks < 5 ? 32u << looks : LONGEST_REST);
        warp_sync();
    }
}

// Tasks `first` … `first + count` − 1 by tickets: each block runs those whose tickets it gets, when they are ready.
template <class Call>
BRICK_DEVICE void run_by_tickets(const Context* c, int first, int count, int launch, int slot, char* shared, Call call) {
    Desk* desk = reinterpret_cast<Desk*>(shared);
    if (thread() == 0) {
        desk->holding = desk->over = 0;
        desk->tasks = desk->first = desk->waits = desk->revisits = 0;
        fetch_max(c->tickets + launch, (unsigned long long)c->epoch << 32);
    }
    for (;;) {
        if (warp() == 0) {
            warp_sync();
            const int task = pick(c, first, count, launch, desk);
            if (lane() == 0) {
                desk->task = task;
                if (task >= 0) note_begin(c, task);
            }
        }
        sync();
        const int task = desk->task;
        if (task < 0) break;
        run_steps(c, task, slot + block(), desk, shared + SHARED_BYTES, call);
        sync();
        if (thread() == 0) {
            note_end(c, task, desk);
            store_release(c->words + task, word(c, COMPLETE));
        }
    }
    if (thread() == 0) {
        const unsigned long long sums[COUNTS] = {desk->tasks, desk->first, desk->waits, desk->revisits};
        for (int k = 0; k < COUNTS; ++k) fetch_add(c->counts + k, sums[k]);
    }
}

// Tasks in turn, by launches in which none waits for another: numbers `first` … `first + count` − 1 of `Context.order`.
template <class Call>
BRICK_DEVICE void run_in_turn(const Context* c, int first, int count, int slot, char* shared, Call call) {
    Desk* desk = reinterpret_cast<Desk*>(shared);
    if (thread() == 0) desk->tasks = desk->first = desk->waits = desk->revisits = desk->task = 0;
    for (int k = first + block(); k < first + count; k += blocks()) {
        const int task = c->order ? c->order[k] : k;
        sync();
        if (thread() == 0) {
            desk->task = stopped(c) ? -1 : 0;
            note_begin(c, task);
        }
        sync();
        if (desk->task < 0) break;
        run_steps(c, task, slot + block(), desk, shared + SHARED_BYTES, call);
        if (c->events) {
            sync();
            if (thread() == 0) note_end(c, task, desk);
        }
    }
}

}  // namespace brick
