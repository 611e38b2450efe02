"""Scheduling by tickets, with real threads for blocks under the thread sanitizer, and with whole warps as fibers."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from brickrt.runtime.cuda.kernels.context_header import header
from brickrt.runtime.cuda.kernels.kernel_context import why_stopped
from tests.support.cuda.host_kernels import HEADERS, HOST, compile_once, needs_compiler

SOURCE = Path(__file__).parent / "schedule_host.cpp"
SANITIZER = ("-fsanitize=thread", "-g", "-DBRICK_WARP=1")
FOLDERS = (f"-I{HEADERS}", f"-I{HOST}")
KINDS = {"threads": (*SANITIZER, 1), "warps": ("-O2", 64)}

pytestmark = needs_compiler


@cache
def program(*flags: str, changed: tuple[str, str] = ("", "")) -> Path:
    """The test program; skips where the compiler cannot make it, or its sanitizer does not run here.

    `changed` is a piece of schedule.cuh, and what stands in its place.
    """
    schedule = (HEADERS / "schedule.cuh").read_text()
    assert changed[0] in schedule
    text = SOURCE.read_text()
    for name, content in (("records", header()), ("schedule", schedule.replace(*changed) if changed[0] else schedule)):
        text = text.replace(f'#include "{name}.cuh"', content)
    try:
        made = compile_once("", text, ["-std=c++17", "-O1", "-w", "-DBRICK_HOST", *flags, *FOLDERS, "-pthread"])
    except AssertionError as e:
        if "tsan" in str(e):
            pytest.skip("no thread sanitizer for g++ here (libtsan)")
        raise
    if flags == SANITIZER and not changed[0]:
        started = subprocess.run([str(made), *"run 1 1 1 1 1".split()], capture_output=True)
        if b"unexpected memory mapping" in started.stderr:
            pytest.skip("the thread sanitizer cannot start here (address space layout)")
    return made


def scheduled(kind: str, scenario: str, blocks: int, tasks: int, epochs: int = 1, seed: int = 1) -> str:
    """What the program prints. A data race is an error."""
    *flags, threads = KINDS[kind]
    words = [str(program(*flags)), *map(str, (scenario, blocks, tasks, epochs, seed, threads))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "blocks", "tasks", "epochs"),
    [
        ("threads", 1, 3_000, 2),
        ("threads", 2, 8_000, 3),
        ("threads", 8, 5_000, 3),
        ("threads", 32, 3_000, 2),
        ("threads", 3, 7, 100),
        ("warps", 2, 3_000, 2),
        ("warps", 6, 2_000, 2),
    ],
)
def test_every_task_runs_once_after_what_it_reads_in_every_epoch(kind, blocks, tasks, epochs):
    said = scheduled(kind, "run", blocks, tasks, epochs)
    first, waits, revisits = map(int, re.findall(r"\d+", said))
    assert first + waits + revisits == tasks * epochs
    assert blocks > 1 or (waits, revisits) == (0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_small_graphs(seed):
    scheduled("threads", "run", 2 + seed % 3, 1 + 34 * seed, 50, seed)


def test_tasks_are_waited_for_and_revisited():
    said = [scheduled("threads", "run", 8, 10_000, 1, seed) for seed in range(3)]
    counts = [list(map(int, re.findall(r"\d+", s))) for s in said]
    assert all(sum(column) > 0 for column in zip(*counts, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_cancelled_and_the_next_one_computes_all(kind):
    said = scheduled(kind, "cancel", 4, 20_000)
    assert re.match(r"stop 1 of 20000: \d+$", said.strip())


@pytest.mark.parametrize("kind", KINDS)
def test_a_hang_names_the_tasks(kind):
    said = scheduled(kind, "hang", 4, 5_000)
    assert why_stopped(int(said.split()[1])) == "task 4999 waited in vain for task 4999"


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_was_started_already_is_an_error(kind):
    said = scheduled(kind, "twice", 4, 5_000)
    assert why_stopped(int(said.split()[1])) == f"task {5_000 // 3} was started twice in one run"


@pytest.mark.parametrize(
    "changed",
    [
        ("load_acquire(", "load_relaxed("),
        ("store_release(c->words + task,", "fetch_max(c->words + task,"),
        ("if (missing) {", "if (false) {"),
    ],
    ids=["no acquire", "no release", "no waiting"],
)
def test_the_sanitizer_notices_what_is_missing(changed):
    program(*SANITIZER)  # or skips
    words = [str(program(*SANITIZER, changed=changed)), *"run 4 20000 1 1 1".split()]
    options = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(words, capture_output=True, text=True, env=options)
    assert done.returncode and ("data race" in done.stderr or "read what was not complete" in done.stdout)
