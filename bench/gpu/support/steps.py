"""Runs scripts that ask a device, each in a process of its own with a limit; what they say goes to files, line by line.

A script that hangs is stopped at its limit, one that crashes is started again behind the item that it crashed at: the
lines so far are on disk, each with its step's name. What was not asked has the status "no time", never "BAD".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bench.gpu.support.items import SPOILED

ROOT = Path(__file__).parents[3]
LEAST_SECONDS_LEFT = 5.0  # for anything to be started
GRACE = 5.0  # seconds that a process may take to be gone, and its last lines to be read
LOOK = 0.25  # seconds between looks at how long an item takes
WRONG = "BAD", "failed", "crashed", "stuck"


@dataclass(frozen=True)
class ScriptStep:
    """A module with its arguments, in `shards` processes side by side, for at most so many seconds, and at most
    `item_seconds` at an item; its lines go to `file`. `under` is a tool that runs it, with that tool's arguments."""

    name: str
    file: str
    seconds: float
    words: tuple[str, ...]
    shards: int = 1
    item_seconds: float = 60.0
    under: tuple[str, ...] = ()


class Lines:
    """The files of results, a line of JSON each, and `log.txt` for all else that processes print."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._lock = folder, threading.Lock()
        self._files: dict[str, TextIO] = {}
        self.counts: dict[str, Counter[str]] = {}

    def add(self, step: ScriptStep, row: Mapping[str, Any]) -> None:
        """Writes a row of a step, and says on stdout what is wrong."""
        status = str(row.get("status", "ok"))
        with self._lock:
            self.counts.setdefault(step.name, Counter())[status] += len(row.get("items", (1,)))
            self._write(f"{step.file}.jsonl", json.dumps({"step": step.name, **row}))
            if status in WRONG:
                print(
                    f"{status} {step.name}: {row.get('item')} {row.get('why', row.get('error', ''))}"[:300], flush=True
                )

    def note(self, row: Mapping[str, Any]) -> None:
        """Writes a row about the run itself."""
        with self._lock:
            self._write("steps.jsonl", json.dumps(row))
            print(json.dumps(row)[:500], flush=True)

    def log(self, step: ScriptStep, text: str) -> None:
        """Writes what is no row."""
        with self._lock:
            self._write("log.txt", f"{step.name}: {text.rstrip()}")

    def _write(self, name: str, text: str) -> None:
        if name not in self._files:
            self._files[name] = (self._folder / name).open("a", encoding="utf-8")
        self._files[name].write(text + "\n")
        self._files[name].flush()

    def close(self) -> None:
        """Closes all files."""
        for file in self._files.values():
            file.close()


def run_rounds(
    rounds: Sequence[Sequence[ScriptStep]], out: Path, minutes: float, device: str, about: Mapping[str, Any]
) -> int:
    """Runs the steps of each round side by side, round by round, until the minutes are over; 1 if anything is wrong."""
    ends, lines = time.monotonic() + 60 * minutes, Lines(out)
    lines.note({"about": dict(about), "minutes": minutes, "device": device})
    for together in rounds:
        workers = [(step, k) for step in together for k in range(step.shards)]
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda one: Worker(one[0], one[1], device, lines, ends).run(), workers))
        for step in together:
            counts = lines.counts.get(step.name, Counter())
            left = round(ends - time.monotonic(), 1)
            lines.note({"step": step.name, "seconds_left": left, "counts": dict(counts)})
    wrong = any(counts[status] for counts in lines.counts.values() for status in WRONG)
    lines.close()
    return int(wrong)


@dataclass
class Worker:
    """One shard of a step: its processes, one after the other."""

    step: ScriptStep
    shard: int
    device: str
    lines: Lines
    ends: float
    asked: list[str] = field(default_factory=list)
    done: int = 0
    under_way: str | None = None
    since: float = 0.0
    stuck: bool = False
    finished: bool = False

    def run(self) -> None:
        """Runs the shard to its end, or until there is no time."""
        if self.step.under and shutil.which(self.step.under[0]) is None:
            self._add({"status": "missing", "why": f"{self.step.under[0]} is not installed"})
            return
        ends = min(self.ends, time.monotonic() + self.step.seconds)
        again = True
        try:
            while again and ends - time.monotonic() > LEAST_SECONDS_LEFT:
                again = self._process(ends)
        except OSError as e:
            self._add({"status": "failed", "why": f"{self.step.words[0]} cannot be started: {e}"})
        rest = self.asked[self.done :] if self.asked or self.finished else [self.step.name]
        if rest:
            self._add({"status": "no time", "items": rest})

    def _process(self, ends: float) -> bool:
        """Runs one process; whether another has to go on."""
        command = [*self.step.under, sys.executable, "-m", *self.step.words]
        command += ["--device", self.device, "--shard", f"{self.shard}/{self.step.shards}", "--skip", str(self.done)]
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        over = threading.Event()
        reader = threading.Thread(target=self._read, args=(running.stdout, over), daemon=True)
        reader.start()
        code = self._watched(running, ends)
        _kill(running)  # and what it has started itself
        _ended(running, GRACE)
        reader.join(GRACE)
        over.set()  # what got away may hold the pipe open: nobody waits for it
        return self._goes_on(code)

    def _watched(self, running: subprocess.Popen[str], ends: float) -> int | None:
        """The exit code of a process; None at the end of the time. One that is stuck at an item is not waited for."""
        while (now := time.monotonic()) < ends:
            code = _ended(running, min(LOOK, ends - now))
            if code is not None:
                return code
            self.stuck = self.under_way is not None and now - self.since > self.step.item_seconds
            if self.stuck:
                return SPOILED
        return None

    def _read(self, pipe: TextIO, over: threading.Event) -> None:
        for text in pipe:
            if over.is_set():
                return
            self._take(text)

    def _goes_on(self, code: int | None) -> bool:
        if code is None:
            return False
        if self.under_way is not None:
            status, why = "crashed", f"its process ended with {code}"
            if self.stuck:
                status, why = "stuck", f"no answer in {self.step.item_seconds:g} s"
            self._answered({"item": self.under_way, "status": status, "why": why})
        elif code not in (0, SPOILED):
            self._add({"status": "failed", "why": f"the process ended with {code}: see log.txt"})
        self.finished = self.finished or code != SPOILED
        return code == SPOILED or self.done < len(self.asked)

    def _take(self, text: str) -> None:
        """One line of a process."""
        try:
            row = json.loads(text) if text.startswith("{") else None
        except ValueError:
            row = None
        if not isinstance(row, dict):
            self.lines.log(self.step, text)
        elif "asks" in row:
            self.asked = self.asked[: self.done] + row["asks"]
        elif "begin" in row:
            self.under_way, self.since = row["begin"], time.monotonic()
        else:
            self._answered(row)

    def _answered(self, row: Mapping[str, Any]) -> None:
        self.under_way = None
        self.done += 1
        self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self.lines.add(self.step, row)


def _ended(running: subprocess.Popen[str], seconds: float) -> int | None:
    """The exit code of a process; None where it goes on longer, as one may that is stuck in the GPU's driver."""
    try:
        return running.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return None


def _kill(running: subprocess.Popen[str]) -> None:
    """Ends a process and all that it has started."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
