// Random graphs of tasks on the scheduling of schedule.cuh, with real threads for blocks. A program: it prints what went
// wrong, and is compiled with the thread sanitizer, to which what tasks write is plain memory.
//     schedule_host SCENARIO BLOCKS TASKS EPOCHS SEED THREADS
// Scenarios: run; cancel: stopped in the middle, then run again; hang: the last task waits for itself; twice: a task is
// already in progress.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "portable.cuh"
#include "records.cuh"
#include "schedule.cuh"

using Word = unsigned long long;

// What a task computes from what the tasks it waits for computed.
struct Work {
    const brick::Context* c;
    Word epoch;
    void operator()(int kernel, const brick::Step& s, char* const* at, char*) const {
        const int task = s.lo[0];
        Word* values = reinterpret_cast<Word*>(at[0]);
        Word* runs = reinterpret_cast<Word*>(at[1]);
        if (brick::thread()) return;
        Word sum = epoch * 1000003 + task + kernel;
        for (int k = c->dep_offsets[task]; k < c->dep_offsets[task + 1]; ++k) sum = sum * 31 + values[c->deps[k]];
        values[task] = sum;
        ++runs[task];
        if (task % 16 == 0) brick::nanosleep(0);  // blocks take turns on a busy machine too
    }
};

// No block runs alone because the others start late. Relaxed: it orders nothing that the scheduling has to order.
void wait_for_all(int launch) {
    static Word arrived[2];
    if (brick::thread()) return;
    const Word blocks = brick::blocks(), mine = brick::fetch_add(&arrived[launch], Word(1));
    while (brick::load_relaxed(&arrived[launch]) < (mine / blocks + 1) * blocks) brick::nanosleep(0);
}

BRICK_KERNEL(work, brick::Context, 32, 1) {
    wait_for_all(launch);
    BRICK_SHARED(shared);
    const Word ended = brick::load_relaxed(c->tickets + brick::TICKET_WORDS * launch) >> 32;
    brick::run_by_tickets(c, first, count, launch, slot, shared, Work{c, 1 + ended});
}

struct Graph {
    std::vector<int> offsets{0}, deps, task_at{0};
    std::vector<long long> records;

    // Tasks wait for near ones, now and then for far ones, and joins for all of the last few.
    Graph(int tasks, unsigned seed) {
        std::mt19937 random(seed);
        const auto below = [&](int n) { return (int)(random() % (unsigned)n); };
        for (int t = 0; t < tasks; ++t) {
            const bool join = t > 100 && below(500) == 0;
            const int many = t == 0 ? 0 : join ? 100 : below(5);
            for (int k = 0; k < many; ++k) deps.push_back(join ? t - 1 - k : below(8) ? t - 1 - below(t < 40 ? t : 40) : below(t));
            offsets.push_back((int)deps.size());
            const Word base = 1;
            records.insert(records.end(), {t % 3, 2 | 1ll << 32, (long long)(base << brick::BASE_SHIFT),
                                           (long long)((base + 1) << brick::BASE_SHIFT), t | (t + 1ll) << 32});
            task_at.push_back((int)records.size());
        }
    }
};

struct Machine {
    Graph graph;
    int tasks;
    std::vector<Word> values, runs, tickets = std::vector<Word>(4), counts = std::vector<Word>(10), told = std::vector<Word>(11);
    std::vector<unsigned> words;
    Word stop = 0, epoch = 0;
    long long* events = nullptr;
    char* bases[3];
    brick::Context c{};

    Machine(int tasks, unsigned seed) : graph(tasks, seed), tasks(tasks), values(tasks), runs(tasks), words(tasks) {
        bases[0] = nullptr;
        bases[1] = reinterpret_cast<char*>(values.data());
        bases[2] = reinterpret_cast<char*>(runs.data());
        c.bases = bases;
        c.task_at = graph.task_at.data();
        c.records = graph.records.data();
        c.dep_offsets = graph.offsets.data();
        c.deps = graph.deps.data();
        c.words = words.data();
        c.tickets = tickets.data();
        c.counts = counts.data();
        c.stop = &stop;
        c.told = told.data();
        c.events = &events;
    }

    // Two launches, one after the other, as a program has several.
    void launch(int blocks, int threads) {
        ++epoch;
        const int half = tasks / 2;
        const long long shared = brick::SHARED_BYTES;
        work(blocks, threads, shared, &c, 0, half, 0, 0, blocks);
        work(blocks, threads, shared, &c, half, tasks - half, 1, 0, blocks);
    }

    // What the host was told of both launches.
    Word counted(int k) const { return told[1 + k] + told[1 + brick::COUNT_WORDS + k]; }

    int wrong(Word each) const {
        for (int t = 0; t < tasks; ++t) {
            Word sum = epoch * 1000003 + t + t % 3;
            for (int k = graph.offsets[t]; k < graph.offsets[t + 1]; ++k) sum = sum * 31 + values[graph.deps[k]];
            if (values[t] != sum) return printf("task %d read what was not complete\n", t);
            if (runs[t] != each) return printf("task %d ran %llu times, not %llu\n", t, runs[t], each);
            if (words[t] != epoch * 4 + brick::COMPLETE) return printf("task %d has word %u\n", t, words[t]);
        }
        if (counted(0) != each * tasks) return printf("%llu tasks counted\n", counted(0));
        if (counted(1) + counted(2) + counted(3) != counted(0)) return printf("counts do not add up\n");
        return 0;
    }
};

int main(int argc, char** argv) {
    if (argc != 7) return printf("schedule_host SCENARIO BLOCKS TASKS EPOCHS SEED THREADS\n");
    const std::string scenario = argv[1];
    const int blocks = atoi(argv[2]), tasks = atoi(argv[3]), epochs = atoi(argv[4]), threads = atoi(argv[6]);
    Machine m(tasks, atoi(argv[5]));
    if (scenario == "hang") {
        m.graph.deps.push_back(tasks - 1);
        ++m.graph.offsets[tasks];
        m.c.deps = m.graph.deps.data();
        m.c.spin_limit = 200000;
    }
    if (scenario == "twice") m.words[tasks / 3] = 4 * 1 + brick::IN_PROGRESS;
    if (scenario == "cancel") {
        std::thread host([&] {
            while (__atomic_load_n(&m.words[tasks / 4], __ATOMIC_RELAXED) == 0) std::this_thread::yield();
            brick::compare_and_swap(&m.stop, 0ull, (Word)brick::CANCELLED);
        });
        m.launch(blocks, threads);
        host.join();
        printf("stop %llu of %d: %llu\n", m.stop, tasks, m.counted(0));
        if (m.counted(0) == (Word)tasks) return printf("it ran to the end\n");
        m.stop = 0;
        m.counts.assign(10, 0);
        m.runs.assign(tasks, 0);
        m.launch(blocks, threads);
        return m.wrong(1);
    }
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        m.launch(blocks, threads);
        if (m.stop) return printf("stop %llu\n", m.told[0]) & 0;
        if (m.wrong(epoch)) return 1;
    }
    printf("complete at first sight %llu, waited for %llu, revisited %llu\n", m.counted(1), m.counted(2), m.counted(3));
}
