// How blocks find their tasks: in turn, or by tickets, waiting for what other blocks compute. A program's text includes
// portable.cuh, then has the text of runtime/cuda/kernels/context_header.py (Context and numbers), then includes this.
//
// Tasks are numbered such that each waits only for smaller ones, and tickets are given in that order. So the smallest
// task that is not complete waits for nothing, and the block that holds its ticket is running and comes to it: there is
// no deadlock, however many blocks there are, and no need that all of them run at the same time.
#pragma once

namespace brick {

constexpr unsigned LONGEST_REST = 1024;  // nanoseconds between two looks

// The operands and box of one step.
struct Frame {
    char* at[MOST_OPERANDS];
    int lo[MOST_RANK], hi[MOST_RANK];
};

// A task that is not ready: it waits for deps[at], and perhaps for some of the others before `end`; those before `at`
// are complete.
struct Held {
    int task, at, end;
};

// What a block keeps in shared memory. Only its first warp reads and writes the members before `task`.
struct BlockState {
    Held held[HELD];  // ascending by task
    int holding, over;  // how many are held; whether all tickets are taken
    unsigned epoch;
    unsigned long long tasks, first, waits, revisits;
    long long* events;  // see `Context::events`
    int task;  // to be run, or -1
    Frame frames[2];
};
static_assert(sizeof(BlockState) <= SHARED_BYTES, "BlockState");

BRICK_DEVICE unsigned word(unsigned epoch, unsigned state) { return epoch * 4 + state; }

// Ends the run, and tells the host why; of several reasons the first is kept.
BRICK_DEVICE void stop(const Context* c, int reason, int task, int dep = 0) {
    const unsigned long long why = reason | (unsigned long long)task << 4 | (unsigned long long)dep << 34;
    if (compare_and_swap(c->stop, 0ull, why)) *c->told = why;
}
BRICK_DEVICE bool stopped(const Context* c) { return load_relaxed(c->stop) != 0; }

// Runs the steps whose records are the words `k` … `end` - 1 that `read` gives: `call(kernel, step, at, shared)` for
// each, with the whole block. `slot` is the block's scratch, unless it lies in shared memory, at `fused`. The block must
// be synchronized before, and after it before `state` is used again.
template <class Read, class Call>
BRICK_DEVICE void run_records(const Context* c, int k, int end, const Read& read, int slot, BlockState* state, char* shared,
                              char* fused, Call call) {
    for (int turn = 0; k < end; turn ^= 1) {  // frames alternate: threads may still read the last one
        const int record = k;
        const long long sizes = read(record + 1);
        const int operands = (int)sizes, rank = (int)(sizes >> 32);
        Frame& frame = state->frames[turn];
        for (int i = thread(); i < operands; i += threads()) {
            const unsigned long long operand = read(record + HEAD_WORDS + i);
            const int base = (int)(operand >> BASE_SHIFT);
            const long long offset = (long long)(operand << (64 - BASE_SHIFT)) >> (64 - BASE_SHIFT);
            char* const start = fused && base == SCRATCH ? fused : read_only(c->bases + base);
            frame.at[i] = start + offset + (!fused && base == SCRATCH ? slot * c->scratch_stride : 0);
        }
        for (int i = thread(); i < rank; i += threads()) {
            const long long ends = read(record + HEAD_WORDS + operands + i);
            frame.lo[i] = (int)ends;
            frame.hi[i] = (int)(ends >> 32);
        }
        k += HEAD_WORDS + operands + rank;
        sync();
        call((int)read(record), Step{frame.lo, frame.hi}, frame.at, shared);
    }
}

// The same for a task, whose records are in global memory, as scratch is.
template <class Call>
BRICK_DEVICE void run_steps(const Context* c, int task, int slot, BlockState* state, char* shared, Call call) {
    const auto read = [&](int k) { return read_only(c->records + k); };
    const int first = read_only(c->task_at + task), end = read_only(c->task_at + task + 1);
    run_records(c, first, end, read, slot, state, shared, nullptr, call);
}

BRICK_DEVICE void note_begin(const Context* c, const BlockState* state, int task) {
    if (!state->events) return;
    long long* row = state->events + (long long)EVENT_WORDS * task;
    row[0] = block();
    row[1] = globaltimer();
    if (c->checked) fence_system();
}
BRICK_DEVICE void note_end(const Context* c, const BlockState* state, int task) {
    if (!state->events) return;
    if (c->checked) fence_system();  // what the block stored is stored: no fault of it can come later
    long long* row = state->events + (long long)EVENT_WORDS * task;
    row[2] = globaltimer();
    row[3] = state->waits;
    row[4] = state->revisits;
}

// Whether all that a task waits for is complete. A whole warp looks, from where its last look ended. What other blocks
// wrote before they published is then visible to the warp, and after the next barrier to the block.
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

// Takes the next ticket and acquires its task. False where all tickets are taken. `mine` becomes false where the task
// was started before. Look at it late: its answer takes as long as the first look at what the task waits for.
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

// The oldest held task that is ready, which is held no longer; or -1.
BRICK_DEVICE int revisit(const Context* c, BlockState* state) {
    const unsigned epoch = state->epoch, complete = word(epoch, COMPLETE);
    const int holding = state->holding;
    unsigned maybe = 0;  // bit k: held[k] may be ready; all are looked at once, without acquiring what others wrote
    for (int from = 0; from < holding; from += WARP) {
        const int k = from + lane();
        maybe |= ballot(k < holding && load_relaxed(c->words + read_only(c->deps + state->held[k].at)) == complete) << from;
    }
    for (; maybe; maybe &= maybe - 1) {
        const int k = first_bit(maybe);
        Held held = state->held[k];
        const bool found = ready(c, epoch, held);
        warp_sync();
        if (lane() == 0) {
            state->held[k] = held;
            if (found) {
                state->holding = holding - 1;
                for (int later = k; later < holding - 1; ++later) state->held[later] = state->held[later + 1];
            }
        }
        warp_sync();
        if (found) return held.task;
    }
    return -1;
}

// The first task of further tickets that is ready, while those that are not are held; or -1 where no more can be held,
// or all tickets are taken.
BRICK_DEVICE int draw(const Context* c, int first, int count, int launch, BlockState* state) {
    while (state->holding < HELD && !state->over) {
        Held held;
        bool mine = true;
        const bool taken = take(c, first, count, launch, state->epoch, held, mine);
        const bool found = taken && ready(c, state->epoch, held);
        if (!mine) stop(c, STARTED_TWICE, held.task);
        if (found) return held.task;
        warp_sync();
        if (lane() == 0) {
            if (taken) state->held[state->holding++] = held;
            else state->over = 1;
        }
        warp_sync();
    }
    return -1;
}

// Counts a task that was found after `looks` looks in vain.
BRICK_DEVICE void note_found(BlockState* state, int task, unsigned looks) {
    const bool passed = state->holding && state->held[0].task < task;
    ++(looks ? state->waits : passed ? state->revisits : state->first);
    ++state->tasks;
}

// The next task for the block, which waits for nothing any more; or -1 at the end. One warp calls it.
BRICK_DEVICE int pick(const Context* c, int first, int count, int launch, BlockState* state) {
    for (unsigned looks = 0;; ++looks) {
        if (ballot(stopped(c))) return -1;
        int task = revisit(c, state);
        if (task < 0) task = draw(c, first, count, launch, state);
        if (task >= 0) {
            warp_sync();
            if (lane() == 0) note_found(state, task, looks);
            return task;
        }
        if (!state->holding) return -1;
        if (c->spin_limit && looks >= c->spin_limit) {
            if (lane() == 0) stop(c, HUNG, state->held[0].task, read_only(c->deps + state->held[0].at));
            return -1;
        }
        if (lane() == 0) nanosleep(looks < 5 ? 32u << looks : LONGEST_REST);
        warp_sync();
    }
}

// Called at the beginning of every block, by one thread. The first block tells the host that the launch has begun: both
// words it loads are on their way together, and nobody waits for what it stores.
BRICK_DEVICE void begin(const Context* c, int launch, BlockState* state) {
    state->tasks = state->first = state->waits = state->revisits = state->task = 0;
    long long* const events = *c->events;
    if (block() == 0) {
        unsigned long long* const count = c->counts + COUNT_WORDS * launch + BEGUN;
        const unsigned long long begun = *count + 1;
        *count = begun;
        store_to_host(c->told + 1 + COUNT_WORDS * launch + BEGUN, begun);
    }
    state->events = events;
}

// Called at the end of every block. The last one begins the launch's next epoch, and tells the host what all counted.
BRICK_DEVICE void leave(const Context* c, int launch, const BlockState* state) {
    unsigned long long *const tickets = c->tickets + TICKET_WORDS * launch, *const counts = c->counts + COUNT_WORDS * launch;
    const unsigned long long mine[COUNTS] = {state->tasks, state->first, state->waits, state->revisits};
    for (int k = 0; k < COUNTS; ++k) fetch_add(counts + k, mine[k]);
    if ((fetch_add_in_order(tickets + 1, 1ull) + 1) % blocks()) return;
    fetch_max(tickets, (unsigned long long)state->epoch << 32);
    for (int k = 0; k < COUNTS; ++k) c->told[1 + COUNT_WORDS * launch + k] = load_relaxed(counts + k);
}

// Tasks `first` … `first + count` − 1 by tickets: each block runs those whose tickets it gets, when they are ready.
template <class Call>
BRICK_DEVICE void run_by_tickets(const Context* c, int first, int count, int launch, int slot, char* shared, Call call) {
    BlockState* state = reinterpret_cast<BlockState*>(shared);
    if (thread() == 0) {
        begin(c, launch, state);
        state->holding = state->over = 0;
        state->epoch = 1 + (unsigned)(load_relaxed(c->tickets + TICKET_WORDS * launch) >> 32);
    }
    for (;;) {
        if (warp() == 0) {
            warp_sync();
            const int task = pick(c, first, count, launch, state);
            if (lane() == 0) {
                state->task = task;
                if (task >= 0) note_begin(c, state, task);
            }
        }
        sync();
        const int task = state->task;
        if (task < 0) break;
        run_steps(c, task, slot + block(), state, shared + SHARED_BYTES, call);
        sync();
        if (thread() == 0) {
            note_end(c, state, task);
            store_release(c->words + task, word(state->epoch, COMPLETE));
        }
    }
    if (thread() == 0) leave(c, launch, state);
}

// Tasks `first` … `first + count` − 1 in turn: in such launches no task waits for another.
template <class Call>
BRICK_DEVICE void run_in_turn(const Context* c, int first, int count, int launch, int slot, char* shared, Call call) {
    BlockState* state = reinterpret_cast<BlockState*>(shared);
    if (thread() == 0) begin(c, launch, state);
    for (int task = first + block(); task < first + count; task += blocks()) {
        sync();
        if (thread() == 0) {
            state->task = stopped(c) ? -1 : 0;
            note_begin(c, state, task);
        }
        sync();
        if (state->task < 0) break;
        run_steps(c, task, slot + block(), state, shared + SHARED_BYTES, call);
        if (state->events) {
            sync();
            if (thread() == 0) note_end(c, state, task);
        }
    }
}

// Where the records of a task lie: the words first … end - 1. None of a task that is not there.
struct RecordRange {
    int first = 0, end = 0;

    RecordRange() = default;
    BRICK_DEVICE RecordRange(const Context* c, int task, int tasks) {
        if (task >= tasks) return;
        first = read_only(c->task_at + task);
        end = read_only(c->task_at + task + 1);
    }
    // Begins to copy them to shared memory.
    BRICK_DEVICE void bring(const Context* c, long long* to) const {
        for (int k = first + thread(); k < end; k += threads()) copy_async8(to + k - first, c->records + k);
        copy_commit();
    }
};

// The same with scratch in shared memory, at `fused`. The records of a task are brought to `records`, in shared memory
// too, while the task before runs, and where they lie is known a task earlier: no step waits for memory to learn what
// it is to do. There is room for two tasks, of at most WORDS words each, and each has a step.
template <int WORDS, class Call>
BRICK_DEVICE void run_fused(const Context* c, int first, int count, int launch, char* shared, Call call, char* records,
                            char* fused) {
    BlockState* state = reinterpret_cast<BlockState*>(shared);
    const int end = first + count;
    int task = first + block(), turn = 0;
    if (thread() == 0) {
        begin(c, launch, state);
        state->task = stopped(c) ? -1 : 0;
    }
    RecordRange mine(c, task, end), next(c, task + blocks(), end);
    mine.bring(c, reinterpret_cast<long long*>(records));
    for (; task < end; task += blocks(), turn ^= 1) {
        copy_wait<0>();
        sync();
        if (state->task < 0) break;
        long long* const words = reinterpret_cast<long long*>(records);
        const unsigned long long stop = thread() == 0 ? load_relaxed(c->stop) : 0;
        const int own = mine.end - mine.first;
        if (thread() == 0) note_begin(c, state, task);
        next.bring(c, words + (turn ^ 1) * WORDS);
        mine = next, next = RecordRange(c, task + 2 * blocks(), end);
        const auto read = [&](int k) { return words[turn * WORDS + k]; };
        run_records(c, 0, own, read, 0, state, shared + SHARED_BYTES, fused, call);
        if (state->events) {
            sync();
            if (thread() == 0) note_end(c, state, task);
        }
        if (thread() == 0 && stop) state->task = -1;
    }
}

}  // namespace brick
