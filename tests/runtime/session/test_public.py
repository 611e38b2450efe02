"""What the package promises to those who import it."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import weakref
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import brickrt
from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.events import Observer, TaskEvents
from brickrt.runtime.execution.report import Report
from brickrt.runtime.stats import Stats

PUBLIC = [brickrt.Runtime, SourceGraph, Stats, Report, TaskEvents, Observer]


def functions(cls: type) -> dict[str, object]:
    """Its public methods and properties, as functions."""
    found = {name: m.fget if isinstance(m, property) else m for name, m in vars(cls).items() if name[0] != "_"}
    return {name: m for name, m in found.items() if inspect.isfunction(m)}


@pytest.mark.parametrize(
    "what", [brickrt.load, *PUBLIC, *(zoo.names, zoo.build, zoo.describe)], ids=lambda w: w.__name__
)
def test_everything_public_says_what_it_is(what):
    assert inspect.getdoc(what)
    for name, function in (functions(what) if inspect.isclass(what) else {"": what}).items():
        assert inspect.getdoc(function), name
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
        assert untyped == [], name


def test_type_checkers_find_the_types():
    assert files("brickrt").joinpath("py.typed").is_file()


def test_a_model_comes_as_a_path_as_bytes_or_as_a_message(tmp_path):
    model = zoo.build("nafnet", size=32, width=8, blocks=2)
    path: Path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    for given in (path, str(path), path.read_bytes(), model):
        assert [n.proto for n in brickrt.load(given).nodes] == [n.proto for n in brickrt.load(model).nodes]
        assert brickrt.Runtime(given, threads=1).source.name == "nafnet"


def test_a_runtime_is_a_context_manager():
    x = np.zeros((1, 3, 32, 32), np.float32)
    with brickrt.Runtime(zoo.build("nafnet", size=32, width=8, blocks=2), threads=1) as rt:
        rt.execute({"x": x})
        program = weakref.ref(rt.plan.programs[0])
        known = rt.plan.peak_bytes, rt.plan.projected_bytes, rt.stats.level_bytes
    gc.collect()
    assert program() is None
    assert (rt.plan.peak_bytes, rt.plan.projected_bytes, rt.stats.level_bytes) == known and min(known[:2]) > 0
    assert rt.stats.tasks > 0 and rt.plan.plans
    with pytest.raises(BrickError), brickrt.Runtime(zoo.build("nafnet", size=32, width=8, blocks=2)) as rt:
        rt.execute({})
    for call in (rt.execute, rt.prepare, rt.execute_many):
        with pytest.raises(BrickError, match=r"the runtime of 'nafnet' is closed: make another one"):
            call({"x": x})
    rt.close()


def test_a_runtime_loads_nothing_of_runs_from_files_to_files():
    """What only `Runtime.stream` needs takes a third of the time in which a process starts."""
    code = "import brickrt, sys; brickrt.Runtime; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "brickrt.runtime.session.runtime" in loaded
    assert not [name for name in loaded if name.startswith(("brickrt.runtime.cluster", "brickrt.runtime.windows"))]
