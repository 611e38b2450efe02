"""A run in bounded memory while it goes on: how far it is, and its memory over time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from brickrt.runtime.stream.resident import resident_bytes
from brickrt.runtime.stream.stream_report import StreamProgress

PERIOD = 0.05  # seconds from sample to sample
MOST_SAMPLES = 2048  # that are kept
RECENT = 2.0  # seconds of which speeds are told


@dataclass(frozen=True)
class StreamState:
    """What a frame shows. `passes` are names, one for each way down the rows, and `pass_s` the seconds that those which
    have begun took until now; `memory` has (second, resident bytes). `busy` counts processors, `reading` and `writing`
    are bytes a second. `parts` are bands or windows; `step` is what goes on where nothing was computed yet."""

    title: str
    parts: str
    passes: tuple[str, ...]
    projected: int
    limit: int
    threads: int
    seconds: float
    step: str = ""
    told: StreamProgress | None = None
    pass_s: Mapping[int, float] = field(default_factory=dict)
    memory: Sequence[tuple[float, int]] = ()
    busy: float = 0.0
    reading: float = 0.0
    writing: float = 0.0

    @property
    def peak(self) -> int:
        """The most bytes of all samples."""
        return max((nbytes for _, nbytes in self.memory), default=0)


class MemorySamples:
    """Resident bytes over time. Where there are more than `most`, neighbours become one, the larger of them: no peak is
    lost."""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self.most, self.every = most, 1
        self.kept: list[tuple[float, int]] = []
        self._waiting: list[tuple[float, int]] = []

    def add(self, second: float, nbytes: int) -> None:
        """Takes note of a sample."""
        self._waiting.append((second, nbytes))
        if len(self._waiting) < self.every:
            return
        self.kept.append(max(self._waiting, key=lambda sample: sample[1]))
        self._waiting = []
        if len(self.kept) > self.most:
            pairs = (self.kept[k : k + 2] for k in range(0, len(self.kept), 2))
            self.kept = [max(pair, key=lambda sample: sample[1]) for pair in pairs]
            self.every *= 2


@dataclass(frozen=True)
class _Look:
    """Counters at one moment."""

    second: float
    processor: float
    read: int
    written: int


@dataclass
class StreamWatch:
    """Watches one run. A context manager: a thread of its own samples memory while it lasts."""

    title: str
    threads: int
    parts: str = "bands"
    passes: tuple[str, ...] = ()
    projected: int = 0
    limit: int = 0
    samples: MemorySamples = field(default_factory=MemorySamples)
    last: StreamProgress | None = None
    ends: dict[int, float] = field(default_factory=dict)  # sweep → second at which its last band yet was told of
    ready: float = 0.0  # second at which the first pass began
    step_text: str = ""

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self._looks: deque[_Look] = deque()
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> StreamWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def planned(self, passes: Sequence[str], projected: int, limit: int) -> None:
        """Takes note of what is known before anything runs: the passes, the projection and the limit in bytes."""
        self.passes, self.projected, self.limit = tuple(passes), projected, limit

    def step(self, what: str, done: int, total: int) -> None:
        """See `Progress`: what is done before the first band."""
        self.step_text = f"{what} {done}/{total}" if total > 1 else what
        self.ready = self._now()

    def told(self, progress: StreamProgress) -> None:
        """See `Watch`."""
        self.last = progress
        self.ends[progress.sweep] = self._now()

    def pass_seconds(self) -> list[float]:
        """Seconds of each pass that has begun; those of the one under way until its last band."""
        begin, found = self.ready, []
        for number in sorted(self.ends):
            found.append(max(0.0, self.ends[number] - begin))
            begin = self.ends[number]
        return found

    def pass_times(self) -> list[tuple[str, float, float]]:
        """The name of each pass that has begun, the second at which it began and the seconds it took."""
        names, seconds = [self.passes[number] for number in sorted(self.ends)], self.pass_seconds()
        begins = [max(0.0, self.ends[number] - s) for number, s in zip(sorted(self.ends), seconds)]
        return list(zip(names, begins, seconds))

    def frame_state(self) -> StreamState:
        """What a frame shows now."""
        looks = list(self._looks)
        first, last = (looks[0], looks[-1]) if looks else (_Look(0, 0, 0, 0),) * 2
        passed = max(last.second - first.second, 1e-9) if len(looks) > 1 else 1.0
        return StreamState(
            title=self.title,
            parts=self.parts,
            passes=self.passes,
            projected=self.projected,
            limit=self.limit,
            threads=self.threads,
            seconds=self._now(),
            step=self.step_text,
            told=self.last,
            pass_s=dict(zip(sorted(self.ends), self.pass_seconds())),
            memory=list(self.samples.kept),
            busy=(last.processor - first.processor) / passed,
            reading=(last.read - first.read) / passed,
            writing=(last.written - first.written) / passed,
        )

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _sample(self) -> None:
        while not self._stop.wait(PERIOD):
            self.look()

    def look(self) -> None:
        """Takes one sample of memory, processor time and bytes moved."""
        now, told = self._now(), self.last
        self.samples.add(now, resident_bytes())
        moved = (told.bytes_read, told.bytes_written) if told else (0, 0)
        self._looks.append(_Look(now, time.process_time(), *moved))
        while self._looks[0].second < now - RECENT:
            self._looks.popleft()
