"""The dashboard in a pseudo-terminal: whole frames, keys, and a terminal left as it was."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import onnx
import pytest

from tests.support.graphs.onnx_models import chain
from tests.support.programs import forks

pytest.importorskip("fcntl", reason="pseudo-terminals are of POSIX systems")
pyte = pytest.importorskip("pyte", reason="reading screens needs pyte: pip install brickrt[test]")

from tests.support.programs.terminals import Terminal  # noqa: E402

NAME = "名前 \x1b[31m\tred"
FOREVER = ["--repeat", "1000000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with chain.onnx, one of whose nodes has a name that should not reach a terminal as it is."""
    place = tmp_path_factory.mktemp("dashboard")
    proto = chain()
    proto.graph.node[0].name = NAME
    onnx.save(proto, place / "chain.onnx")
    return place


def words(*more: str) -> list[str]:
    options = "--random --strategy memoized --brick 8 --threads 2 --dashboard"
    return ["run", "chain.onnx", *options.split(), *more]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50)])
def test_frames_are_whole_and_hold_all_parts(folder, columns, rows):
    terminal = Terminal(words(*FOREVER), columns, rows, folder)
    assert terminal.read(60, lambda t: "q quit" in t.screen.display[-1])
    assert terminal.read(60, lambda t: sum("q quit" in seen[-1] for seen in t.seen) > 4)
    frames = [seen for seen in terminal.seen if "q quit" in seen[-1]]
    assert frames
    for seen in frames:
        assert seen[0].startswith("chain") and "run " in seen[0]
        assert seen[1].startswith("all runs") and seen[2].startswith("this run")
    text = "\n".join(frames[-1])
    for part in (
        "worker 0",
        "worker 1",
        "memoized",
        "to do",
        "complete first",
        "waits",
        "recomputed",
        "live",
        "projected",
    ):
        assert part in text, text
    for part in ("reuse dist.", "beyond l2", "layers", "GF/s", "名", "?[31m?red"):
        assert part in text, text
    terminal.type(b"q")
    assert terminal.end() == 0
    assert "latency" in terminal.raw.decode(errors="replace").split("\x1b[?1049l")[1]


def test_keys(folder):
    for file in folder.glob("brickrt-*.txt"):
        file.unlink()
    terminal = Terminal(words(*FOREVER), 80, 24, folder)
    assert terminal.read(60, terminal.shows("tasks/s"))
    terminal.type(b"\t")
    assert terminal.read(60, lambda t: "worker 0" not in "".join(t.screen.display))
    terminal.type(b"p")
    assert terminal.read(60, terminal.shows("p go on"))
    before = list(terminal.screen.display)
    terminal.read(0.5)
    assert terminal.screen.display == before
    terminal.type(b"s")
    assert terminal.read(60, terminal.shows("saved brickrt-"))
    (snapshot,) = folder.glob("brickrt-*.txt")
    lines = snapshot.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 24 and lines[0].startswith("chain") and "\x1b" not in "".join(lines)
    terminal.type(b"\x1b[Apq")
    terminal.type(b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_terminals_that_want_less(folder, env):
    terminal = Terminal(words("--repeat", "300"), 80, 24, folder, env)
    assert terminal.end() == 0
    if "TERM" in env:
        assert b"\x1b" not in terminal.raw and b"run 300 of 300, 100 %" in terminal.raw
    else:
        assert not any(b"\x1b[%dm" % code in terminal.raw for code in range(30, 50))


def test_without_a_terminal_there_is_one_line_and_json_is_clean(folder):
    done = forks.run(["-m", "brickrt", *words("--repeat", "3", "--json")], folder, check=True)
    assert json.loads(done.stdout)["runs"] == 3
    assert done.stderr.startswith("run 3 of 3, 100 %") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("moment", ["tasks/s", f"/{FOREVER[1]}"])
def test_ctrl_c_leaves_the_terminal_sane(folder, moment):
    files = ["--output", "y.npy", "--trace", "t.json", "--report", "r.html"]
    terminal = Terminal(words(*FOREVER, *files), 80, 24, folder)
    assert terminal.read(60, terminal.shows(moment))
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert b"interrupted" in terminal.raw
    assert not [path.name for path in folder.iterdir() if path.name.endswith((".npy", ".json", ".html"))]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str)
def test_signals_that_end_it_leave_the_terminal_sane(folder, sent, code):
    terminal = Terminal(words(*FOREVER, "--output", "y.npy"), 80, 24, folder)
    assert terminal.read(60, terminal.shows("tasks/s"))
    os.kill(terminal.pid, sent)
    assert terminal.end() == code
    assert not (folder / "y.npy").exists()


def test_what_nohup_ignores_stays_ignored(folder):
    terminal = Terminal(words(*FOREVER), 80, 24, folder, program=["-c", NOHUP])
    assert terminal.read(60, terminal.shows("tasks/s"))
    os.kill(terminal.pid, signal.SIGHUP)
    terminal.seen.clear()
    assert terminal.read(60, terminal.shows("tasks/s"))
    terminal.type(b"q")
    assert terminal.end() == 0


NOHUP = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "brickrt", *sys.argv[1:]])
"""


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(folder):
    terminal = Terminal(words(*FOREVER), 80, 24, folder, program=["-c", SHELL])
    assert terminal.read(60, terminal.shows("tasks/s"))
    terminal.type(b"\x1a")
    assert terminal.read(60, lambda t: b"stopped, echo on" in t.raw)
    assert terminal.raw.count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l") == 1
    assert terminal.raw.rfind(b"\x1b[?25l") < terminal.raw.rfind(b"\x1b[?25h")
    terminal.type(b"\n")
    assert terminal.read(60, lambda t: t.raw.count(b"\x1b[?1049h") == 2 and "tasks/s" in "".join(t.screen.display))
    terminal.type(b"q")
    assert terminal.end() == 0


SHELL = """
import os, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it hands the terminal over and takes it back
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-m", "brickrt", *sys.argv[1:]])
_, status = os.waitpid(job, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
echo = termios.tcgetattr(0)[3] & termios.ECHO and termios.tcgetattr(0)[3] & termios.ICANON
print("stopped" if os.WIFSTOPPED(status) else "ended", "echo on" if echo else "echo off", sep=", ", flush=True)
input()
os.tcsetpgrp(0, job)
os.kill(job, signal.SIGCONT)
_, status = os.waitpid(job, 0)
os.tcsetpgrp(0, os.getpgrp())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_ctrl_z_without_a_shell_changes_nothing(folder):
    """Nobody could wake the process up; as it does for others, the system lets the signal be."""
    terminal = Terminal(words(*FOREVER), 80, 24, folder)
    assert terminal.read(60, terminal.shows("tasks/s"))
    terminal.type(b"\x1a")
    assert terminal.read(60, lambda t: t.raw.count(b"\x1b[?1049h") == 2)
    assert terminal.read(60, terminal.shows("q quit"))
    terminal.type(b"q")
    assert terminal.end() == 0


def test_frames_follow_the_size_of_the_terminal(folder):
    terminal = Terminal(words(*FOREVER), 200, 50, folder)
    assert terminal.read(60, terminal.shows("tasks/s"))
    for columns, rows in ((80, 24), (60, 15), (120, 40)):
        terminal.resize(columns, rows)
        terminal.seen.clear()
        assert terminal.read(60, lambda t: any("q quit" in seen[-1] and seen[0].startswith("chain") for seen in t.seen))
    terminal.type(b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize("presses", [1, 2])
def test_what_does_not_hear_signals_is_ended_all_the_same(tmp_path, presses):
    """The main thread hashes for minutes, in C, while a file is half written."""
    done = forks.run(["-c", DEAF, presses], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "restored\n", "brickrt: interrupted\n")
    assert not list(tmp_path.iterdir())


DEAF = """
import hashlib, os, signal, sys, threading
from pathlib import Path
from brickrt.cli.files import write_whole
from brickrt.cli.terminal.signals import Signals, heard
from brickrt.dashboard.live.terminal_restore import restored_by

def press():
    for _ in range(int(sys.argv[1])):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.2)

signal.signal(signal.SIGINT, signal.default_int_handler)
with heard(Signals()), restored_by(lambda: print("restored", flush=True)):
    threading.Timer(0.5, press).start()
    write_whole(Path("out"), lambda file: hashlib.pbkdf2_hmac("sha512", b"word", b"salt", 2**31 - 1))
"""


def test_interrupts_reach_a_run_in_compiled_code(tmp_path):
    """One run of a second or more: it ends between tasks, not at its end."""
    nodes = [onnx.helper.make_node("Conv", [a, "w"], [b], pads=[1] * 4) for a, b in zip("xabcdefg", "abcdefgy")]
    w = onnx.numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), "w")
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (2, 64, 512, 512)) for n in "xy"]
    graph = onnx.helper.make_graph(nodes, "long", ends[:1], ends[1:], [w])
    ops = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=ops, ir_version=8), tmp_path / "long.onnx")
    done = forks.run(["-c", SIGNALLED, tmp_path / "long.onnx"])
    assert done.stdout == "ended\n", done.stderr


SIGNALLED = """
import os, signal, sys, threading
import numpy as np
from brickrt import Runtime
from brickrt.cli.terminal.interrupts import interruptible

class Press:
    def began(self, tasks, rows):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    def ended(self, tasks, events):
        raise SystemExit("the run came to its end")
    def hosted(self, *node):
        pass

signal.signal(signal.SIGINT, signal.default_int_handler)
runtime = Runtime(sys.argv[1], watch=Press(), exact=True)
try:
    with interruptible(runtime.cancel):
        runtime.execute({"x": np.zeros((2, 64, 512, 512), np.float32)})
except KeyboardInterrupt:
    print("ended")
"""
