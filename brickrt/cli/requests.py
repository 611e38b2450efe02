"""What a command is asked for, as its options say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brickrt.plan import options


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    reference = "reference"


class Strategy(StrEnum):
    auto = "auto"
    layerwise = "layerwise"
    padded = "padded"
    memoized = "memoized"


class Precision(StrEnum):
    fp32 = "fp32"
    tf32 = "tf32"
    fp16 = "fp16"
    bf16 = "bf16"


class LaunchOption(StrEnum):
    auto = "auto"
    streams = "streams"
    graph = "graph"
    persistent = "persistent"


class ImageLayoutOption(StrEnum):
    nchw = "nchw"
    nhwc = "nhwc"


@dataclass(frozen=True)
class ImageRequest:
    """How images become tensors; None: what the model's input suggests."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    scale: float | None = None
    layout: ImageLayoutOption | None = None
    resize: tuple[int, int] | None = None

    def given(self) -> list[str]:
        """The options that were set."""
        return [f"--{name}" for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class InputRequest:
    """Where inputs come from: `files` are `file` or `name=file`."""

    files: tuple[str, ...] = ()
    random: bool = False
    seed: int | None = None
    shapes: tuple[str, ...] = ()
    image: ImageRequest = ImageRequest()


@dataclass(frozen=True)
class EngineRequest:
    """Arguments of the runtime."""

    device: str = "auto"
    strategy: options.Strategy = "auto"
    brick: int | None = None
    threads: int | None = None
    max_layers: int | None = None
    exact: bool = False
    precision: options.Precision = "fp32"
    launch: str = "auto"

    def arguments(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class WatchRequest:
    """How runs are watched: files to write, and whether the dashboard is shown."""

    trace: Path | None = None
    trace_arrows: bool = False
    report: Path | None = None
    dashboard: bool = False


@dataclass(frozen=True)
class RunRequest:
    model: Path
    inputs: InputRequest
    engine: EngineRequest
    output: Path | None = None
    repeat: int = 1
    verify: bool = False
    json: bool = False
    watch: WatchRequest = WatchRequest()

    def files(self) -> dict[str, Path]:
        """The files to write, by option."""
        given = {"--output": self.output, "--trace": self.watch.trace, "--report": self.watch.report}
        return {option: path for option, path in given.items() if path is not None}


@dataclass(frozen=True)
class PlanRequest:
    model: Path
    shapes: tuple[str, ...] = ()
    strategy: options.Strategy = "auto"
    brick: int | None = None
    max_layers: int | None = None
    exact: bool = False
    device_spec: str = "cpu"
    precision: options.Precision = "fp32"
    compare: bool = False
    html: Path | None = None
    json: bool = False


@dataclass(frozen=True)
class BenchRequest:
    """`model` is a file or a network of the zoo; None: all of the zoo. `batch` and `size` None: the model's own."""

    model: str | None
    inputs: InputRequest
    engine: EngineRequest
    peers: tuple[str, ...] | None = None
    batch: int | None = None
    size: tuple[int, ...] | None = None
    rounds: int = 11
    output: Path | None = None
    json: bool = False


@dataclass(frozen=True)
class DemoRequest:
    """`size` is the edge of the photograph in pixels."""

    out: Path
    size: int = 2048
    threads: int | None = None
    seed: int = 0
    runs: int = 3
    json: bool = False
