"""The live dashboard: a thread that draws frames while a runtime runs, and reads keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from brickrt.dashboard.keys import Keys
from brickrt.dashboard.view import VIEWS, Scene, frame

PERIOD = 0.1  # seconds from frame to frame


class Dashboard:
    """Draws what `scene()` gives, on the whole screen; `on_quit` is called when q is pressed.

    A context manager: the terminal is afterwards as it was, whatever happens inside. `folder` is where snapshots go.
    """

    def __init__(
        self, scene: Callable[[], Scene], on_quit: Callable[[], None], folder: Path, console: Console | None = None
    ) -> None:
        self.scene, self.on_quit, self.folder = scene, on_quit, folder
        self.console = console or Console(stderr=True)
        self.view, self.paused, self.note = VIEWS[0], False, ""
        self._shown = scene()
        self._stop = threading.Event()

    def __enter__(self) -> Dashboard:
        self._keys = Keys()
        self._live = Live(console=self.console, screen=True, auto_refresh=False, redirect_stdout=False)
        try:
            self._live.start()
        except BaseException:
            self._keys.close()
            raise
        self._thread = threading.Thread(target=self._work, name="brickrt-dashboard", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._live.stop()
        self._keys.close()

    def _work(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self.draw()
            for key in self._keys.read(max(0.01, PERIOD - (time.monotonic() - started))):
                self.press(key)

    def draw(self) -> None:
        """One frame."""
        self._live.update(Text("\n", no_wrap=True, end="").join(self.lines(*self.console.size)), refresh=True)

    def lines(self, width: int, height: int) -> list[Text]:
        if not self.paused:
            self._shown = self.scene()
        return frame(self._shown, width, height, self.view, self.paused, self.note)

    def press(self, key: str) -> None:
        """q quit, p pause the view, tab the next view, s save a snapshot."""
        self.note = ""
        if key == "q":
            self.note = "quitting after this run"
            self.on_quit()
        elif key == "p":
            self.paused = not self.paused
        elif key == "\t":
            self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)]
        elif key == "s":
            self.note = self._save()

    def _save(self) -> str:
        """The screen as text in a new file; says where, or why not."""
        file = self.folder / time.strftime("brickrt-%Y%m%d-%H%M%S.txt")
        try:
            with open(file, "x", encoding="utf-8") as out:
                out.writelines(line.plain.rstrip() + "\n" for line in self.lines(*self.console.size))
        except OSError as e:
            return f"not saved: {e.strerror}"
        return f"saved {file.name}"
