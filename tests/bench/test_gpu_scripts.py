"""The scripts for GPU machines, as far as a machine without one can run them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from brickrt.compare.gpu_peers import as_numpy, make_peers
from brickrt.compare.interleave import turns
from brickrt.runtime.events import TaskEvents

FOLDER = Path(__file__).parents[2] / "bench" / "gpu"
RAW = """==PROF== Connected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_sectors.sum","l1tex__t_sectors.sum"
"","","Mbyte","Kbyte","sector","sector"
"0","layer_0","1.5","2","1,000","10"
"1","bricks_1","0.5","1","24","n/a"
"""


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("all", "common", "check", "brickdl", "counters", "networks", "host", "null_driver"):
        sys.modules.pop(name, None)


def test_counters_are_summed_over_kernels(scripts):
    import counters

    assert counters.summed(RAW) == {
        "dram_read_bytes": 2e6, "dram_write_bytes": 3e3, "l2_sectors": 1024.0, "l1_sectors": 10.0
    }  # fmt: skip
    assert counters.summed("==ERROR== no permission\n") == {}


def test_time_per_brick_comes_from_events(scripts):
    import brickdl

    rows = [np.array([[0, 1, 4_001, 0, 0], [1, 10_001, 16_001, 0, 0]]), np.array([[2, 5_001, 9_001, 0, 0]])]
    events = TaskEvents(rows)
    assert brickdl.per_brick(events) == {"task_us": pytest.approx(14 / 3), "between_us": 6.0}


def test_rows_are_on_disk_as_soon_as_they_are_there(scripts, tmp_path):
    from common import ResultTable, options

    from brickrt.plan.device.device_spec import PRESETS

    asked = options("", networks="").parse_args(["--out", str(tmp_path)])
    for asked.append, rows in ((True, 1), (True, 2), (False, 1)):
        ResultTable("some", PRESETS["h200"], asked, what=1).add({"a": 1}, "")
        read = json.loads((tmp_path / "some.json").read_text())
        assert read["rows"] == [{"a": 1}] * rows
    assert read["what"] == 1 and read["machine"]["device"]["name"] == "NVIDIA H200"
    assert [f.name for f in tmp_path.iterdir()] == ["some.json"]


def test_every_network_is_asked_for_once_per_setting(scripts):
    import argparse

    import networks

    asked = argparse.Namespace(precisions="fp32,fp16", batches="1,8", networks="vgg16,unet", large=True)
    rows = list(networks.wanted(asked))
    assert len(rows) == len(set(rows)) == 2 * (2 * 2 + 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_peers_agree_on_the_host(precision):
    """PyTorch as it is, traced and compiled, and XLA, on the CPU: the same calls as on a GPU."""
    pytest.importorskip("torch", reason="PyTorch is not installed: peers of the GPU benchmark need it")
    from brickrt import Runtime, zoo

    model = zoo.build("mobilenetv2", size=32)
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)}
    (want,) = Runtime(model).execute(x).values()
    peers, left_out = make_peers(model, x, precision, ["torch", "torchscript", "xla"], device="cpu")
    assert {p.name for p in peers} | set(left_out) == {"torch", "torchscript", "xla"} and "torch" not in left_out
    for peer in peers:
        (got,) = map(as_numpy, peer.run())
        assert np.abs(got - want).max() <= (1e-4 if precision == "fp32" else 0.1) * np.abs(want).max()
    assert all(len(times) == 2 for times in turns(peers, rounds=2, pause=0).values())


@pytest.mark.parametrize("name", ["mobilenetv2", "vit-s16", "unet"])
def test_networks_are_given_to_torch_compile_in_one_graph(name):
    """As far as Dynamo goes: what generates code would take minutes."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: peers of the GPU benchmark need it")
    from brickrt import zoo
    from brickrt.compare.gpu_peers import exported
    from brickrt.compare.torch_backend import TorchNetwork
    from brickrt.compare.translate import network

    module, x = TorchNetwork(network(zoo.build(name, size=32))).eval(), torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        (want,) = module(x)
        (got,) = torch.compile(exported(module, [x]), backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(got, want)


def test_a_peer_that_would_compute_on_the_host_is_left_out():
    """JAX falls back to the host where it cannot use the GPU: no peer of a GPU."""
    jax = pytest.importorskip("jax", reason="JAX is not installed: it is compared where it is present")
    if jax.default_backend() == "gpu":
        pytest.skip("JAX has a GPU here")
    from brickrt import zoo

    x = {"x": np.zeros((1, 3, 32, 32), np.float32)}
    peers, left_out = make_peers(zoo.build("mobilenetv2", size=32), x, "fp32", ["xla"])
    assert not peers and "JAX finds no GPU" in left_out["xla"]


def test_the_hosts_time_is_measured_on_a_device_that_does_nothing(scripts, monkeypatch, tmp_path, capsys):
    """How long it takes here is no matter."""
    import host

    from brickrt.runtime.session import runtime

    monkeypatch.setattr(runtime, "choose_engine", runtime.choose_engine)  # put back afterwards
    monkeypatch.setattr(host, "WINDOWS", 2)
    words = "host.py --device null --networks nafnet --runs 20 --out".split()
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path)])
    host.main()
    assert "run same" in capsys.readouterr().out and (tmp_path / "cuda-host-null.json").exists()


def test_what_comes_after_an_error_that_ends_all_work_is_done_by_a_new_process(scripts, monkeypatch, tmp_path):
    """The third of six rows fails for good: its file has three rows, and another process goes on with the fourth."""
    import check
    import common

    from brickrt.plan.device.device_spec import PRESETS

    asked_for, failing = [], ("fp32", "padded", "graph")

    def error_of(*rest):
        return (1.0, "an illegal address") if rest[-1] == failing else (0.0, "")

    def run(words):
        asked_for.append(words)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(check, "gpu", lambda: SimpleNamespace(spec=PRESETS["h200"]))
    monkeypatch.setattr(check, "references", lambda name: (name, {}, []))
    monkeypatch.setattr(check, "error_of", error_of)
    monkeypatch.setattr(check, "spoiled", lambda: True)
    monkeypatch.setattr(common, "gpu_text", lambda: None)
    monkeypatch.setattr(common, "subprocess", SimpleNamespace(run=run))
    words = (
        "check.py --networks unet --precisions fp32 --strategies layerwise,padded,memoized --launches graph,persistent"
    )
    words += " --runs 0"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--out", str(tmp_path)])
    assert check.main() == 1
    ((_, *again),) = asked_for
    assert again[: len(sys.argv)] == sys.argv and again[len(sys.argv) :][:3] == ["--append", "--skip", "3"]
    monkeypatch.setattr(sys, "argv", again)
    assert check.main() == 0 and len(asked_for) == 1
    rows = json.loads((tmp_path / "cuda-check.json").read_text())["rows"]
    assert [row["error"] for row in rows] == [0, 0, 1, 0, 0, 0]


def test_a_step_is_stopped_with_all_that_it_has_started(scripts, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "all", raising=False)
    import all as everything

    monkeypatch.setattr(everything, "LEAST", 1.0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import time; fifo = open({str(fifo)!r}, 'w'); print('here', file=fifo, flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    assert everything._run([sys.executable, "-S", "-c", parent], 5) == 124
    assert os.read(reader, 10) == b"here\n"
    os.set_blocking(reader, True)
    assert os.read(reader, 10) == b""  # nobody has it open for writing, once what was killed is gone
    os.close(reader)


def test_a_check_that_crashes_is_no_success(scripts, monkeypatch, tmp_path, capsys):
    """Steps are run for what they ask; a killed check fails all, a tool that is missing is said."""
    monkeypatch.delitem(sys.modules, "all", raising=False)
    import all as everything

    ran = []
    monkeypatch.setattr(everything, "_run", lambda words, seconds: ran.append(words) or (-11 if "1000" in words else 0))
    monkeypatch.setattr(sys, "argv", ["all.py", "--only", "check,counters", "--out", str(tmp_path)])
    assert everything.main() == 1 and len(ran) == len(everything.CHECKED) + 1
    given = [words[words.index("--networks") + 1] for words in ran[:-1]]
    assert given == list(everything.CHECKED) and not set(given) & set(ran[-1])
    monkeypatch.setattr(sys, "argv", ["all.py", "--only", "counters", "--out", str(tmp_path)])
    assert everything.main() == 0
    monkeypatch.undo()
    assert everything._run(["no-such-tool-anywhere"], 1) == 127 and "not checked" in capsys.readouterr().out


def test_what_is_missing_or_unknown_is_one_line(scripts, monkeypatch, capsys):
    import all as everything
    import check
    import common

    from brickrt.graph.errors import BrickError

    def missing(device):
        raise BrickError("device 'cuda' needs CuPy: install it")

    monkeypatch.setattr(common, "choose_engine", missing)
    asked = {check: "check.py", everything: "all.py --only check,bogus"}
    for module, words in asked.items():
        monkeypatch.setattr(sys, "argv", words.split())
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "device 'cuda' needs CuPy: install it"
    assert second.startswith("step 'bogus' is unknown: use some of check, sanitize")
