"""What cuDNN plans of all products of the zoo, on devices that are only described: python -m bench.gpu.cudnn_plans

Nothing runs on a GPU, and none is needed, but nvidia-cudnn-cu13, nvidia-cublas (1.5 GB) and a C compiler are. All
forms that plans of the networks ask cuDNN for are planned by it, once per device. Writes bench/results/cudnn-plans.json
after each precision, and keeps what that has of others; exits with 1 where a form is refused for no known reason, ends
cuDNN's process, or is to be computed in full float32 and gets a plan on tensor cores. Most of the time goes by while
cuDNN compiles kernels: minutes per device and precision, in float32 one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from bench.gpu.described.devices import DESCRIBED
from bench.gpu.described.forms import described, kind_of, known_refusal, wrong
from bench.gpu.described.library import PACKAGES, Answer, DescribedLibrary, missing
from bench.gpu.described.zoo_calls import PRECISIONS, STRATEGIES, ask_for
from bench.gpu.support.common import RESULTS, among
from bench.gpu.support.kernel_figures import ModelPrograms
from brickrt import zoo
from brickrt.ops.cuda.cudnn.form import Form
from brickrt.plan.options import Precision

RESULT = RESULTS / "cudnn-plans.json"
ABOUT = "cuDNN's plans for devices that are only described; nothing ran on a GPU"
DEVICES = ("h200", "a100", "l40s")
COLUMNS = ("network", "strategy", "products", "by cuDNN")
Row = tuple[str, str, int, int]


Said = Mapping[Form, Answer]


def asked(libraries: Sequence[DescribedLibrary], precision: Precision, names: Sequence[str]) -> dict[str, list[Row]]:
    """COLUMNS of each plan that was asked for, by device."""
    rows: dict[str, list[Row]] = {library.device: [] for library in libraries}
    for name in names:
        network = ModelPrograms.of(zoo.build(name))
        for library in libraries:
            before, start = len(library.answers), time.monotonic()
            for strategy in STRATEGIES:
                counts = ask_for(network, library, library.device, precision, strategy)
                rows[library.device].append((name, strategy, counts.products, counts.called))
            new, seconds = len(library.answers) - before, time.monotonic() - start
            print(f"{name} on {library.device} in {precision}: {new} new forms, {seconds:.0f} s", flush=True)
    return rows


def summary(said: Said) -> dict[str, Any]:
    """What cuDNN said to forms: counts by kind, the engines of first plans, and every refusal."""
    planned = Counter(kind_of(form) for form, answer in said.items() if answer.refused is None)
    refused = Counter(kind_of(form) for form, answer in said.items() if answer.refused is not None)
    plans = ((kind_of(form), answer.plan) for form, answer in said.items() if answer.refused is None)
    engines = Counter(f"{kind}: {plan.partition('_')[0]}" for kind, plan in plans)
    return {
        "forms": len(said),
        "planned": dict(sorted(planned.items())),
        "refused": dict(sorted(refused.items())),
        "first engines": dict(sorted(engines.items())),
        "refusals": sorted(
            [described(form), known_refusal(form) or answer.refused]
            for form, answer in said.items()
            if answer.refused is not None
        ),
    }


def text_of(result: Mapping[str, Any]) -> str:
    """JSON with a row, or a refusal, to a line."""
    text = json.dumps({key: value for key, value in result.items() if key != "results"}, indent=1)
    found = ",\n".join(f"  {json.dumps(name)}: {{\n{_fields(one)}\n  }}" for name, one in result["results"].items())
    return text.removesuffix("\n}") + f',\n "results": {{\n{found}\n }}\n}}\n'


def _fields(one: Mapping[str, Any]) -> str:
    lines = []
    for key, value in one.items():
        rows = key in ("refusals", "plans") and ",\n    ".join(map(json.dumps, value))
        lines.append(f"   {json.dumps(key)}: " + (f"[\n    {rows}\n   ]" if rows else json.dumps(value)))
    return ",\n".join(lines)


def main() -> int:
    """Asks, and writes what was said; 1 if something must not be, 2 if something is not installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(zoo.names()))
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    known = {"networks": zoo.names(), "devices": DESCRIBED, "precisions": PRECISIONS}
    chosen = {key: among(getattr(args, key), names, key[:-1]) for key, names in known.items()}
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    lines: list[str] = []
    with ExitStack() as stack:
        libraries = [stack.enter_context(DescribedLibrary(device)) for device in chosen["devices"]]
        for precision in PRECISIONS:
            if precision in chosen["precisions"]:
                lines += answered(libraries, precision, chosen["networks"], args.out)
    print(*lines, sep="\n")
    return bool(lines)


def answered(
    libraries: Sequence[DescribedLibrary], precision: Precision, names: Sequence[str], path: Path
) -> list[str]:
    """Asks for a precision and writes what was said; what must not be, a line each."""
    before = {library.device: len(library.answers) for library in libraries}
    rows = asked(libraries, precision, names)
    lines = []
    for library in libraries:
        device = library.device
        new = dict(islice(library.answers.items(), before[device], None))
        lines += [f"{device}: {line}" for line in wrong(new)]
        write(path, library, precision, {**summary(new), "columns": COLUMNS, "plans": rows[device]})
    return lines


def write(path: Path, library: DescribedLibrary, precision: Precision, found: dict[str, Any]) -> None:
    """Puts a result in the file, beside those of other devices and precisions that the same packages gave."""
    head = {"about": ABOUT, "cudnn": library.version, "packages": {name: metadata.version(name) for name in PACKAGES}}
    old = json.loads(path.read_text()) if path.exists() else {}
    kept = old.get("results", {}) if all(old.get(key) == value for key, value in head.items()) else {}
    path.write_text(text_of(head | {"results": kept | {f"{library.device} {precision}": found}}))


if __name__ == "__main__":
    sys.exit(main())
