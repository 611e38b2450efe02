"""The dashboard of a run in bounded memory, in a pseudo-terminal."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

pytest.importorskip("fcntl", reason="pseudo-terminals are of POSIX systems")
pytest.importorskip("pyte", reason="reading screens needs pyte: pip install brickrt[test]")

from brickrt import zoo
from tests.runtime.windows.helpers import image, layers
from tests.support.programs import forks
from tests.support.programs.terminals import Terminal

EDGE = 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with m.onnx, which has passes, w.onnx, which takes windows, and an input for each."""
    place = tmp_path_factory.mktemp("stream")
    (place / "m.onnx").write_bytes(zoo.build("nafnet", size=EDGE).SerializeToString())
    (place / "w.onnx").write_bytes(layers())
    np.save(place / "x.npy", np.zeros((1, 3, EDGE, EDGE), np.float32))
    np.save(place / "w.npy", image(1600, 1600))
    return place


BANDS = "run m.onnx --input x.npy --output y.npy --max-memory 64GiB --dashboard".split()
WINDOWS = "run w.onnx --input w.npy --output w.zarr --max-memory 64GiB --window 16 --dashboard".split()


def test_bands_show_live_and_the_report_follows(folder):
    terminal = Terminal([*BANDS, "--report", "r.html"], 80, 24, folder)
    assert terminal.read(120, lambda t: "pass 3" in "".join(t.screen.display) and "left" in t.screen.display[1])
    for part in ("all bands", "this pass", "row ", "workers", "busy", "read", "written", "now,", "allowed", "q end"):
        assert terminal.shows(part)(terminal), part
    assert terminal.end(120) == 0
    after = terminal.raw.decode(errors="replace").split("\x1b[?1049l")[-1]
    assert "measured" in after and "r.html" in after
    page = (folder / "r.html").read_text("utf-8")
    assert "<polyline" in page and "pass 5" in page


def rows_done(terminal: Terminal) -> int:
    found = re.search(r"row (\d+)/", "".join(terminal.screen.display))
    return int(found[1]) if found else 0


def test_q_ends_a_run_on_windows_which_goes_on(folder):
    terminal = Terminal(WINDOWS, 80, 24, folder)
    assert terminal.read(120, lambda t: rows_done(t) > 40)
    assert terminal.shows("windows of 16, overlap 0.5: not the exact result")(terminal)
    terminal.type(b"q")
    assert terminal.end() == 130
    assert b"are finished and kept: the same command with --resume goes on with them" in terminal.raw
    words = [word for word in WINDOWS if word != "--dashboard"]
    done = forks.run(["-m", "brickrt", *words, "--resume", "--json"], folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert 0 < told["windows_run"] < told["windows"]


def test_without_a_terminal_there_is_one_line_and_json_is_clean(folder):
    done = forks.run(["-m", "brickrt", *BANDS, "--json"], folder, check=True)
    told = json.loads(done.stdout)
    assert done.stderr.startswith("bands ") and ", 100 %" in done.stderr and len(done.stderr.splitlines()) == 1
    assert [one["name"] for one in told["pass_times"]] == [f"pass {k + 1}" for k in range(told["sweeps"])]
    begins = [one["begin_s"] for one in told["pass_times"]]
    assert begins == sorted(begins) and told["memory_samples"]
    assert max(nbytes for _, nbytes in told["memory_samples"]) <= told["peak_bytes"] <= told["projected_bytes"]
