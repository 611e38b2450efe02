"""Mailboxes, compiled: how jobs reach helper threads that never run Python. A helper waits briefly on a word of its
mailbox, then sleeps.

A helper thread serves one mailbox, int64 words:
    0 state: EMPTY, POSTED, TAKEN or CLOSED   8 function   9, 10 its two arguments   16… mutex   24… condition
`run_jobs` posts jobs, does one itself and waits for those that were taken; one that its helper has not come to by then
is taken back, so that nobody waits for a thread that sleeps or has no core.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, Index
from brickrt.runtime.cpu.compile.native_function import NativeFunction
from brickrt.runtime.cpu.workers.backoff import pause, rest
from brickrt.runtime.cpu.workers.mailbox_words import (
    CLOSED,
    CONDITION,
    EMPTY,
    JOB,
    JOB_WORDS,
    MUTEX,
    POSTED,
    STATE,
    TAKEN,
)

SPIN_NS = 100_000  # for which a helper without work looks before it sleeps: about twice what waking it up costs
LOOKS = 32  # between two looks at the clock


class _MailboxFunction(NativeFunction):
    """A function that uses mailboxes."""

    def state(self, box: ir.Value) -> ir.Value:
        return self.acquire_word(box, STATE)

    def exchange(self, box: ir.Value, old: int, new: int) -> ir.Value:
        """Whether the state was `old`, and is `new` now."""
        return self.swap_word(box, STATE, I64(old), I64(new), "acquire")

    def locked(self, name: str, box: ir.Value) -> None:
        self.intrinsic(f"pthread_mutex_{name}", I32, self.at(box, MUTEX))

    def run(self, job: ir.Value) -> None:
        """Calls a function with its two arguments."""
        self.call_kernel(self.word(job, 0), *(self.b.inttoptr(self.word(job, k), PTR) for k in (1, 2)))

    def mailbox(self, jobs: ir.Value, k: Index) -> ir.Value:
        return self.b.inttoptr(self.word(jobs, self.mul(k, JOB_WORDS)), PTR)


def _prepare(module: ir.Module) -> None:
    """`void prepare(box)`: a mailbox, of zeros, becomes one that can be served."""
    f = _MailboxFunction(module, "prepare")
    box, none = f.context, ir.Constant(PTR, None)
    f.intrinsic("pthread_mutex_init", I32, f.at(box, MUTEX), none)
    f.intrinsic("pthread_cond_init", I32, f.at(box, CONDITION), none)
    f.finish()


def _serve(module: ir.Module) -> None:
    """`void serve(box)`: runs the jobs of a mailbox until it is closed."""
    f = _MailboxFunction(module, "serve")
    box = f.context
    turn = f.enter("turn")
    until = f.b.add(f.clock(), I64(SPIN_NS))
    after = f.fn.append_basic_block("after")
    spin = f.enter("spin")
    with f.loop(0, LOOKS):
        with f.when(f.b.icmp_signed("!=", f.state(box), I64(EMPTY))):
            f.b.branch(after)
        pause(f)
    f.intrinsic("sched_yield", I32)
    with f.when(f.b.icmp_signed("<", f.clock(), until)):
        f.b.branch(spin)
    _sleep(f, box)
    f.b.branch(after)
    f.b.position_at_end(after)
    with f.when(f.b.icmp_signed("==", f.state(box), I64(CLOSED))):
        f.finish()
    with f.when(f.exchange(box, POSTED, TAKEN)):
        f.run(f.at(box, JOB))
        f.release_word(I64(EMPTY), box, STATE)
    f.b.branch(turn)


def _sleep(f: _MailboxFunction, box: ir.Value) -> None:
    """Sleeps until the state is not EMPTY."""
    f.locked("lock", box)
    awake = f.fn.append_basic_block("awake")
    again = f.enter("asleep")
    with f.when(f.b.icmp_signed("!=", f.state(box), I64(EMPTY))):
        f.b.branch(awake)
    f.intrinsic("pthread_cond_wait", I32, f.at(box, CONDITION), f.at(box, MUTEX))
    f.b.branch(again)
    f.b.position_at_end(awake)
    f.locked("unlock", box)


def _tell(module: ir.Module) -> ir.Function:
    """`void tell(box, state)`: changes the state of a mailbox that is EMPTY, and wakes its helper."""
    f = _MailboxFunction(module, "tell", I64)
    box, state = f.fn.args
    f.locked("lock", box)
    f.release_word(state, box, STATE)
    f.intrinsic("pthread_cond_signal", I32, f.at(box, CONDITION))
    f.locked("unlock", box)
    f.finish()
    return f.fn


def _run_jobs(module: ir.Module, tell: ir.Function) -> None:
    """`void run_jobs(jobs, n)`: jobs [n, JOB_WORDS], the first here; returns when all are done or taken back."""
    f = _MailboxFunction(module, "run_jobs", I64)
    jobs, n = f.fn.args
    with f.loop(1, n) as k:
        box = f.mailbox(jobs, k)
        for word in range(1, JOB_WORDS):
            f.put(f.word(jobs, f.add(f.mul(k, JOB_WORDS), word)), box, JOB + word - 1)
        f.b.call(tell, [box, I64(POSTED)])
    f.run(f.at(jobs, 1))
    looks = f.local(I64)
    with f.loop(1, n) as k:
        box = f.mailbox(jobs, k)
        with f.when(f.b.not_(f.exchange(box, POSTED, EMPTY))):
            done = f.fn.append_basic_block("done")
            f.set(looks, I64(0))
            again = f.enter("again")
            with f.when(f.b.icmp_signed("==", f.state(box), I64(EMPTY))):
                f.b.branch(done)
            f.set(looks, f.b.add(f.get(looks, I64), I64(1)))
            rest(f, f.get(looks, I64))
            f.b.branch(again)
            f.b.position_at_end(done)
    f.finish()


def mailbox_module() -> ir.Module:
    """The module with `prepare`, `serve`, `tell` and `run_jobs`."""
    module = ir.Module("mailbox")
    _prepare(module)
    _serve(module)
    _run_jobs(module, _tell(module))
    return module
