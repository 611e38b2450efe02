"""Does every calibration of this machine lead to the same plans, whatever else the machine does?

    python bench/calibrations.py [--times 10] [--networks nafnet,vit-s16]

Each calibration is a process of its own with empty caches, on the machine as it is, and then beside processes that keep
one core busy, all cores, and the memory. Per load: how long calibrations took, the figures that plans depend on, and to
how many devices they led. Per network: the digests of the plans for those devices. Fails where there are several.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from networks import ELEVEN

from brickrt import zoo
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.plan.plan import make_plan
from brickrt.runtime.cache.saved_plan import plan_file_text

SIZES = ELEVEN | {"nafnet": 1024}
SPIN = "while True: pass"
COPY = "import numpy as np\na = np.ones(2**24)\nb = a.copy()\nwhile True: b[:] = a"
CALIBRATE = """
import json, sys, time
from dataclasses import asdict
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.calibrate.calibration import calibration
started = time.perf_counter()
found = calibration(host_device())
took = time.perf_counter() - started
print(json.dumps([took, found.planned(host_device()).to_dict(), asdict(found)]))
"""


@contextmanager
def busy(programs: list[str]) -> Iterator[None]:
    """Processes that run these programs meanwhile, each in a session of its own, as other users' would be."""
    running = [subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for text in programs]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def calibrate() -> tuple[float, DeviceSpec, dict]:
    """Seconds that a calibration with empty caches took, the device as plans see it, and all that was found."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"BRICKRT_CACHE_DIR": folder, "BRICKRT_CALIBRATE": "1"}
        command = [sys.executable, "-c", CALIBRATE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    took, device, found = json.loads(done.stdout)
    speeds = ("peak_gflops_per_core", "pairs", "bandwidth", "core_bandwidth", "task_overhead_us")
    return took, replace(host_device(), **{name: device[name] for name in speeds}), found


def graph_of(name: str) -> Graph:
    """A network of the zoo, as it is planned."""
    model = zoo.build(name, size=SIZES[name])
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    types = {"x": TensorType(shape, np.dtype(np.float32))}
    return specialize(first_stage(load(model)), types, {}).graph


def under(load: str, programs: list[str], times: int) -> list[DeviceSpec]:
    """The devices that so many calibrations led to, beside these programs."""
    with busy(programs):
        took, devices, found = zip(*(calibrate() for _ in range(times)), strict=True)
    cores = [entry["measured"]["core"] for entry in found]
    figures = {
        "GHz": [core["clock_ghz"] for core in cores],
        "vectors a cycle": [core["vectors_per_cycle"] for core in cores],
        "with paired elements": [core["paired_per_cycle"] for core in cores],
    } | {
        f"{level}, bytes a cycle": [core["bandwidth"][level] / core["clock_ghz"] for core in cores]
        for level in cores[0]["bandwidth"]
    }
    told = ", ".join(f"{name} {min(values):.2f}–{max(values):.2f}" for name, values in figures.items())
    distinct = len({str(device) for device in devices})
    loads = " ".join(f"{value:.1f}" for value in os.getloadavg()[:2])
    print(
        f"{load:12} {times} calibrations, {distinct} devices, {min(took):.2f}–{max(took):.2f} s, {told} (load {loads})"
    )
    return list(devices)


def main() -> None:
    """Calibrates under each load, plans each network for each device, and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--networks", default=",".join(SIZES))
    asked = parser.parse_args()
    cores = host_device().cores
    loads = {"as it is": [], "a busy core": [SPIN], "busy cores": [SPIN] * cores, "busy memory": [COPY] * cores}
    found = [device for load, programs in loads.items() for device in under(load, programs, asked.times)]
    devices = list({str(device): device for device in found}.values())
    several = False
    for name in asked.networks.split(","):
        graph = graph_of(name)
        texts = [plan_file_text(graph, make_plan(graph, device)) for device in devices]
        digests = sorted({hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts})
        several |= len(digests) > 1
        print(f"{name:14} {len(digests)} plans of {len(found)} calibrations: {' '.join(digests)}")
    sys.exit("equal hardware led to several plans" if several else 0)


if __name__ == "__main__":
    main()
