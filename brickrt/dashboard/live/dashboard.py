"""The live dashboard: a thread that draws frames while a runtime runs, and reads keys."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Generic

from brickrt.dashboard.live.frames import DashboardFrames, Shown
from brickrt.dashboard.live.keys import Keys, in_foreground
from brickrt.dashboard.live.lines import Line, plain
from brickrt.dashboard.live.screen import Screen
from brickrt.dashboard.live.terminal_restore import restored_by

PERIOD = 0.1  # seconds from frame to frame
PATIENCE = 0.5  # seconds for which the frame under way is waited for


class Dashboard(Generic[Shown]):
    """Draws what `frame_state()` gives as `frames` say, on the whole screen; calls `on_quit` when q is pressed.

    A context manager: the terminal is afterwards as it was, whatever happens inside, and what was written to standard
    error meanwhile follows. While the process is stopped or in the background, the terminal is others'. Where standard
    error is no terminal, one line of progress is left; a terminal that cannot place its cursor gets that line over and
    over. `folder` is where snapshots go.
    """

    def __init__(
        self,
        frame_state: Callable[[], Shown],
        on_quit: Callable[[], None],
        folder: Path,
        frames: DashboardFrames[Shown],
        ending: str = "quitting after this run",
    ) -> None:
        self.frame_state, self.on_quit, self.folder, self.frames = frame_state, on_quit, folder, frames
        self.view, self.paused, self.note, self._ending = frames.views[0], False, "", ending
        self._stream = sys.stderr
        self._screen = Screen(self._stream)
        self._is_screen = self._screen.is_usable
        self._captured, self._shown = StringIO(), frame_state()
        self._stop = threading.Event()
        self._drawing = threading.Lock()  # the terminal is taken, drawn on and restored by several threads
        self._keys, self._taken = Keys(False), False

    def __enter__(self) -> Dashboard:
        self._resources = ExitStack()
        self._thread = threading.Thread(target=self._work, name="brickrt-dashboard", daemon=True)
        try:
            self._resources.callback(self._last_line)
            if self._is_screen:
                self._resources.enter_context(redirect_stderr(self._captured))
                self._resources.enter_context(restored_by(self.restore))
                self._resources.callback(self.restore)
            self._thread.start()
        except BaseException:  # Ctrl-C may come before the first frame
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        try:
            if self._thread.ident is not None:
                self._thread.join()
        finally:
            self._resources.close()

    def _last_line(self) -> None:
        if not self._is_screen:
            ends = ("\r", "\n") if self._stream.isatty() else ("", "\n")
            self._stream.write(self.frames.one_line(self.frame_state()).join(ends))
        self._stream.write(self._captured.getvalue())
        self._stream.flush()

    def restore(self) -> None:
        """The terminal becomes as it was, until the next frame. From any thread."""
        ours = self._drawing.acquire(timeout=PATIENCE)  # a frame may hang in a terminal that takes nothing
        try:
            if self._taken:
                self._taken = False
                self._keys.close()
                self._screen.close()
        finally:
            if ours:
                self._drawing.release()

    def _take(self) -> bool:
        """Whether the screen is ours to draw on."""
        if not self._taken and in_foreground(self._stream):
            self._taken = True
            self._keys = Keys()
            self._screen.open()
        return self._taken

    def _work(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self.draw()
            for key in self._keys.read(max(0.01, PERIOD - (time.monotonic() - started)), self._stop):
                self.press(key)
                self.draw()

    def draw(self) -> None:
        """Draws one frame, or the line of progress."""
        if self._is_screen:
            with self._drawing:
                if not self._stop.is_set() and self._take():
                    width, height = self._screen.size()
                    self._screen.draw(self.lines(width, height), width, height)
        elif self._stream.isatty():
            self._stream.write("\r" + self.frames.one_line(self.frame_state()))
            self._stream.flush()

    def lines(self, width: int, height: int) -> list[Line]:
        """The frame for a screen of this size; the same moment again while paused."""
        if not self.paused:
            self._shown = self.frame_state()
        return self.frames.frame(self._shown, width, height, self.view, self.paused, self.note)

    def press(self, key: str) -> None:
        """Does what a key stands for: q quits, p pauses the view, tab shows the next view, s saves a snapshot."""
        self.note = ""
        if key == "q":
            self.note = self._ending
            self.on_quit()
        elif key == "p":
            self.paused = not self.paused
        elif key == "\t":
            views = self.frames.views
            self.view = views[(views.index(self.view) + 1) % len(views)]
        elif key == "s":
            self.note = self._save()

    def _save(self) -> str:
        """The screen as text in a new file; says where, or why not."""
        file = self.folder / time.strftime("brickrt-%Y%m%d-%H%M%S.txt")
        try:
            with open(file, "x", encoding="utf-8") as out:
                out.writelines(plain(spans).rstrip() + "\n" for spans in self.lines(*self._screen.size()))
        except OSError as e:
            return f"not saved: {e.strerror}"
        return f"saved {file.name}"
