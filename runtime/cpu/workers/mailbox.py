"""How work reaches threads that stay outside Python, compiled: they wait briefly on a word, then sleep.

A helper thread serves one mailbox, int64 words:
    0 state: EMPTY, POSTED, TAKEN or CLOSED   8 function   9, 10 its two arguments   16… mutex   24… condition
`lead` posts jobs, does one itself and waits for those that were taken; one that its helper has not come to by then is
taken back, so that nobody waits for a thread that sleeps or has no core.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, VOID
from brickrt.runtime.cpu.workers.backoff import pause, rest

EMPTY, POSTED, TAKEN, CLOSED = range(4)
STATE, JOB, MUTEX, CONDITION = 0, 8, 16, 24
MAILBOX_WORDS = 32
JOB_WORDS = 4  # mailbox (of the first job none), function, and its two arguments
SPIN_NS = 100_000  # a helper without work looks for more so long before it sleeps: about what waking it up costs twice
LOOKS = 32  # between two looks at the clock


class _MailboxFunction:
    def __init__(self, module: ir.Module, name: str, *args: ir.Type) -> None:
        self.f = FunctionEmitter(module, name, args)

    def at(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.gep(base, [self.f.value(k)], source_etype=I64)

    def word(self, base: ir.Value, k) -> ir.Value:
        return self.f.b.load(self.at(base, k), typ=I64)

    def state(self, box: ir.Value) -> ir.Value:
        return self.f.b.load_atomic(self.at(box, STATE), "acquire", 8, typ=I64)

    def set_state(self, box: ir.Value, state: int) -> None:
        self.put_state(box, I64(state))

    def put_state(self, box: ir.Value, state: ir.Value) -> None:
        place = self.f.b.inttoptr(self.f.b.ptrtoint(self.at(box, STATE), I64), I64.as_pointer())
        self.f.b.store_atomic(state, place, "release", 8)

    def exchange(self, box: ir.Value, old: int, new: int) -> ir.Value:
        """Whether the state was `old`, and is `new` now."""
        swap = self.f.b.cmpxchg(self.at(box, STATE), I64(old), I64(new), "acq_rel", "acquire")
        return self.f.b.extract_value(swap, 1)

    def locked(self, name: str, box: ir.Value) -> None:
        self.f.intrinsic(f"pthread_mutex_{name}", I32, self.at(box, MUTEX))

    def run(self, job: ir.Value) -> None:
        """Calls a function with its two arguments."""
        function = self.f.b.inttoptr(self.word(job, 0), ir.FunctionType(VOID, [PTR, PTR]).as_pointer())
        self.f.b.call(function, [self.f.b.inttoptr(self.word(job, k), PTR) for k in (1, 2)])

    def mailbox(self, jobs: ir.Value, k) -> ir.Value:
        return self.f.b.inttoptr(self.word(jobs, self.f.mul(k, JOB_WORDS)), PTR)

    def now(self) -> ir.Value:
        """Nanoseconds."""
        time = self.f.local(I64, count=2)
        self.f.intrinsic("clock_gettime", I32, I32(1), time)
        return self.f.b.add(self.f.b.mul(self.word(time, 0), I64(10**9)), self.word(time, 1))

    def block(self, name: str) -> ir.Block:
        """A new block, entered from here."""
        new = self.f.fn.append_basic_block(name)
        self.f.b.branch(new)
        self.f.b.position_at_end(new)
        return new


def _prepare(module: ir.Module) -> None:
    """`void prepare(box)`: a mailbox, of zeros, becomes one that can be served."""
    p = _MailboxFunction(module, "prepare", PTR)
    box, none = p.f.fn.args[0], ir.Constant(PTR, None)
    p.f.intrinsic("pthread_mutex_init", I32, p.at(box, MUTEX), none)
    p.f.intrinsic("pthread_cond_init", I32, p.at(box, CONDITION), none)
    p.f.finish()


def _serve(module: ir.Module) -> None:
    """`void serve(box, unused)`: runs the jobs of a mailbox until it is closed."""
    s = _MailboxFunction(module, "serve", PTR)
    f, box = s.f, s.f.fn.args[0]
    turn = s.block("turn")
    until = f.b.add(s.now(), I64(SPIN_NS))
    after = f.fn.append_basic_block("after")
    spin = s.block("spin")
    with f.loop(0, LOOKS):
        with f.when(f.b.icmp_signed("!=", s.state(box), I64(EMPTY))):
            f.b.branch(after)
        pause(f)
    f.intrinsic("sched_yield", I32)
    with f.when(f.b.icmp_signed("<", s.now(), until)):
        f.b.branch(spin)
    _sleep(s, box)
    f.b.branch(after)
    f.b.position_at_end(after)
    with f.when(f.b.icmp_signed("==", s.state(box), I64(CLOSED))):
        f.finish()
    with f.when(s.exchange(box, POSTED, TAKEN)):
        s.run(s.at(box, JOB))
        s.set_state(box, EMPTY)
    f.b.branch(turn)


def _sleep(s: _MailboxFunction, box: ir.Value) -> None:
    """Until the state is not EMPTY."""
    f = s.f
    s.locked("lock", box)
    awake = f.fn.append_basic_block("awake")
    again = s.block("asleep")
    with f.when(f.b.icmp_signed("!=", s.state(box), I64(EMPTY))):
        f.b.branch(awake)
    f.intrinsic("pthread_cond_wait", I32, s.at(box, CONDITION), s.at(box, MUTEX))
    f.b.branch(again)
    f.b.position_at_end(awake)
    s.locked("unlock", box)


def _tell(module: ir.Module) -> ir.Function:
    """`void tell(box, state)`: changes the state of a mailbox that is EMPTY, and wakes its helper."""
    t = _MailboxFunction(module, "tell", PTR, I64)
    box, state = t.f.fn.args
    t.locked("lock", box)
    t.put_state(box, state)
    t.f.intrinsic("pthread_cond_signal", I32, t.at(box, CONDITION))
    t.locked("unlock", box)
    t.f.finish()
    return t.f.fn


def _lead(module: ir.Module, tell: ir.Function) -> None:
    """`void lead(jobs, n)`: `n` jobs [n, JOB_WORDS], the first here; returns when all are done or taken back."""
    s = _MailboxFunction(module, "lead", PTR, I64)
    f = s.f
    jobs, n = f.fn.args
    with f.loop(1, n) as k:
        box = s.mailbox(jobs, k)
        for word in range(1, JOB_WORDS):
            f.b.store(s.word(jobs, f.add(f.mul(k, JOB_WORDS), word)), s.at(box, JOB + word - 1))
        f.b.call(tell, [box, I64(POSTED)])
    s.run(s.at(jobs, 1))
    looks = f.local(I64)
    with f.loop(1, n) as k:
        box = s.mailbox(jobs, k)
        with f.when(f.b.not_(s.exchange(box, POSTED, EMPTY))):
            done = f.fn.append_basic_block("done")
            f.set(looks, I64(0))
            again = s.block("again")
            with f.when(f.b.icmp_signed("==", s.state(box), I64(EMPTY))):
                f.b.branch(done)
            f.set(looks, f.b.add(f.get(looks, I64), I64(1)))
            rest(f, f.get(looks, I64))
            f.b.branch(again)
            f.b.position_at_end(done)
    f.finish()


def mailbox_module() -> ir.Module:
    """The module with `prepare`, `serve`, `tell` and `lead`."""
    module = ir.Module("mailbox")
    _prepare(module)
    _serve(module)
    _lead(module, _tell(module))
    return module
