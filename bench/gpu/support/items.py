"""What a script asks a device, one thing after the other: each answer is a line of JSON, written once it is known.

`steps.py` runs such scripts with a limit, and again where an error on the GPU ended all work of a process. A line has
the `item`'s name, its figures and a `status`:

    ok       it passed, or was measured     missing  a package or a tool is not installed
    BAD      the result is wrong
    failed   it raised an error: `why`      null     the device was one that does nothing

`steps.py` adds: `crashed`, its process ended; `stuck`, it gave no answer in its limit; and `no time`: it was not asked,
or not to its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from brickrt.plan.device.device_spec import PRESETS

DEVICES = ("cuda", "null", *PRESETS)
"""The GPU; a device that does nothing; and such of other names, for which kernels are compiled."""
SPOILED = 3
"""Exit code of a script whose process can use the GPU no more: what is left is for a new process."""


class NotInstalled(Exception):
    """A package or a tool that an item needs is missing; the message says which."""


@dataclass(frozen=True)
class Item:
    """One thing to ask: `ask` gives its figures, among which `good` says whether a check passed."""

    name: str
    ask: Callable[[], Mapping[str, Any]]


def options(description: str | None) -> argparse.ArgumentParser:
    """What every script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEVICES, default="cuda", help="all but cuda do nothing")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th item, from the k-th on")
    parser.add_argument("--skip", type=int, default=0, help="so many items are done")
    return parser


def run(items: Iterable[Item], asked: argparse.Namespace) -> int:
    """Asks the items of this process and prints their lines; the exit code."""
    which, of = map(int, asked.shard.split("/"))
    mine = [item for k, item in enumerate(items) if k % of == which][asked.skip :]
    say({"asks": [item.name for item in mine]})
    for item in mine:
        say({"begin": item.name})
        row = answer(item, asked.device != "cuda")
        say(row)
        if row["status"] in ("BAD", "failed") and asked.device == "cuda" and spoiled():
            return SPOILED
    return 0


def answer(item: Item, null: bool) -> dict[str, Any]:
    """The line of an item."""
    began = time.monotonic()
    try:
        found = dict(item.ask())
        status = "null" if null else "ok" if found.pop("good", True) else "BAD"
    except (NotInstalled, ImportError) as e:
        found, status = {"why": why(e)}, "missing"
    except Exception as e:  # the driver, CuPy, cuDNN and peers have errors of their own
        found, status = {"why": why(e)}, "failed"
    return {"item": item.name, "status": status, **found, "s": round(time.monotonic() - began, 2)}


def say(row: Mapping[str, Any]) -> None:
    """Prints a line of JSON at once. Numbers keep six digits: more are noise."""
    print(json.dumps(_shorter(row)), flush=True)


def _shorter(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {str(key): _shorter(inner) for key, inner in value.items()}
    return [_shorter(inner) for inner in value] if isinstance(value, list | tuple) else value


def why(error: Exception) -> str:
    """An error of whatever library in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def spoiled() -> bool:
    """Whether an error on the GPU has ended all work of this process, as one of a kernel does."""
    if "cupy" not in sys.modules:
        return False
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False
