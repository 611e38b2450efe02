"""Where and with what something was measured."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import brickrt
from brickrt.plan.device.device_spec import DeviceSpec

LIBRARIES = ("numpy", "llvmlite", "onnxruntime", "openvino", "torch", "jax")


def machine(spec: DeviceSpec) -> dict[str, Any]:
    """Versions, system and commit, for files of results; `device` holds the figures that the plans were made with."""
    return {
        "brickrt": brickrt.__version__,
        "commit": _commit(),
        "cpu": spec.name,
        "python": platform.python_version(),
        "system": platform.platform(),
        "libraries": {name: found for name in LIBRARIES if (found := installed_version(name))},
        "device": spec.to_dict(),
    }


def _commit() -> str | None:
    """The commit of the working copy that brickrt was imported from; None where it was installed."""
    folder = Path(brickrt.__file__).parents[1]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def installed_version(package: str) -> str | None:
    """The version of a package that is installed, None where it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
