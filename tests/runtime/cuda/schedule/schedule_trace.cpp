// The scheduling of schedule.cuh, one atomic step at a time: blocks are fibers of one thread, and before each step
// chance says whose turn it is. What they did is written down, for a model to do the same.
#include <random>
#include <vector>

#define BRICK_WARP 1
#include "portable.cuh"
#include "records.cuh"

using Word = unsigned long long;

enum Op { OPEN, DRAW, SEE, ACQUIRE, CHECK, VISIT, BEGIN, END, PUBLISH, LEAVE, RENEW };
struct Line {
    int block, op, task;
};

namespace {
std::vector<brick::host::Block> blocks;
std::vector<brick::host::Point> points;
std::vector<bool> done;
brick::host::Point home;
int current;
std::vector<Line> lines;
const brick::Context* context;
int tasks_taken_by_block[64];
}  // namespace

static void turn() { brick::host::jump(points[current], home); }
static void step(Op op, long long task) {
    turn();
    lines.push_back({current, op, (int)task});
}

namespace brick {
inline unsigned traced_load_relaxed(const unsigned* p) {
    const int task = int(p - context->words);
    step(task == tasks_taken_by_block[current] ? SEE : VISIT, task);
    return load_relaxed(p);
}
inline Word traced_load_relaxed(const Word* p) {
    if (p == context->tickets) step(OPEN, 0);
    return load_relaxed(p);
}
inline unsigned traced_load_acquire(const unsigned* p) {
    step(CHECK, p - context->words);
    return load_acquire(p);
}
inline void traced_store_release(unsigned* p, unsigned v) {
    step(PUBLISH, p - context->words);
    store_release(p, v);
}
inline bool traced_compare_and_swap(unsigned* p, unsigned expected, unsigned wanted) {
    step(ACQUIRE, p - context->words);
    tasks_taken_by_block[current] = -1;
    return compare_and_swap(p, expected, wanted);
}
inline bool traced_compare_and_swap(Word* p, Word expected, Word wanted) { return compare_and_swap(p, expected, wanted); }
inline Word traced_fetch_add(Word* p, Word v) {
    if (p != context->tickets) return fetch_add(p, v);
    step(DRAW, 0);
    const Word seen = fetch_add(p, v);
    tasks_taken_by_block[current] = (int)(unsigned)seen;
    return seen;
}
inline Word traced_fetch_add_in_order(Word* p, Word v) {
    step(LEAVE, 0);
    return fetch_add_in_order(p, v);
}
inline Word traced_fetch_max(Word* p, Word v) {
    step(RENEW, 0);
    return fetch_max(p, v);
}
}  // namespace brick

#define load_relaxed traced_load_relaxed
#define load_acquire traced_load_acquire
#define store_release traced_store_release
#define compare_and_swap traced_compare_and_swap
#define fetch_add traced_fetch_add
#define fetch_add_in_order traced_fetch_add_in_order
#define fetch_max traced_fetch_max
#define nanosleep(ns) turn()
#include "schedule.cuh"

struct Work {
    void operator()(int, const brick::Step& s, char* const*, char*) const {
        step(BEGIN, s.lo[0]);
        step(END, s.lo[0]);
    }
};

static int count;
static void run_block() {
    std::vector<char> shared(brick::SHARED_BYTES);
    brick::run_by_tickets(context, 0, count, 0, 0, shared.data(), Work{});
    done[current] = true;
    turn();
}

// Runs tasks `epochs` times; the lines of all, of which `room` are written to `out`. How many there are.
extern "C" int trace(int tasks, const int* offsets, const int* deps, int grid, int epochs, unsigned seed, Line* out, int room) {
    std::vector<long long> records;
    std::vector<int> task_at{0};
    for (long long t = 0; t < tasks; ++t) {
        records.insert(records.end(), {0, 1ll << 32, t | (t + 1) << 32});
        task_at.push_back((int)records.size());
    }
    std::vector<unsigned> words(tasks);
    std::vector<Word> tickets(2), counts(5), told(6);
    Word stop = 0;
    long long* events = nullptr;
    brick::Context c{};
    c.task_at = task_at.data();
    c.records = records.data();
    c.dep_offsets = offsets;
    c.deps = deps;
    c.words = words.data();
    c.tickets = tickets.data();
    c.counts = counts.data();
    c.told = told.data();
    c.stop = &stop;
    c.events = &events;
    context = &c;
    count = tasks;
    lines.clear();
    std::mt19937 random(seed);
    char* stacks = static_cast<char*>(aligned_alloc(brick::host::STACK, grid * brick::host::STACK));
    for (int epoch = 0; epoch < epochs; ++epoch) {
        blocks = std::vector<brick::host::Block>(grid);
        points.assign(grid, {});
        done.assign(grid, false);
        std::vector<int> left;
        for (int b = 0; b < grid; ++b) {
            blocks[b].block = b;
            blocks[b].blocks = grid;
            blocks[b].threads = 1;
            tasks_taken_by_block[b] = -1;
            brick::host::prepare(points[b], stacks + b * brick::host::STACK, run_block);
            left.push_back(b);
        }
        while (!left.empty()) {
            const size_t k = random() % left.size();
            current = left[k];
            brick::host::me() = brick::host::Fiber{&blocks[current], {}, 0, 0};
            brick::host::jump(home, points[current]);
            if (done[current]) left.erase(left.begin() + k);
        }
    }
    free(stacks);
    for (int k = 0; k < room && k < (int)lines.size(); ++k) out[k] = lines[k];
    return stop || told[1] != (Word)tasks * epochs ? -1 : (int)lines.size();
}
