"""What a command is asked for, as its options say it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

# What options accept; strategies, precisions, launches, GPUs and targets are those of the API (a test holds them to
# that), whose modules may load NumPy: help does without it.
Device = Literal["auto", "cpu", "cuda", "reference"]
Strategy = Literal["auto", "layerwise", "padded", "memoized", "fused"]
Rules = Literal["model", "brickdl", "unfused"]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
CpuPrecision = Literal["fp32", "bf16"]
Launch = Literal["auto", "streams", "dynamic", "graph", "persistent"]
PlannedDevice = Literal["cpu", "h200", "h100", "a100", "l40s", "rtx4090"]
Target = Literal["host", "avx512", "avx2", "generic", "neon"]
ImageLayout = Literal["nchw", "nhwc"]
Blend = Literal["gaussian", "constant"]
SpillChoice = Literal["auto", "never"]
Preset = Literal["imagenet", "clip", "unit", "raw", "ct"]
Saved = Literal["labels", "mask", "overlay"]
RangeMethod = Literal["minmax", "entropy", "percentile"]


@dataclass(frozen=True)
class ImageRequest:
    """How images become tensors; None stands for what the model's input suggests."""

    preset: Preset | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    scale: float | None = None
    layout: ImageLayout | None = None
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

    device: Device = "auto"
    strategy: Strategy = "auto"
    brick: int | None = None
    threads: int | None = None
    max_layers: int | None = None
    exact: bool = False
    precision: Precision = "fp32"
    launch: Launch = "auto"
    plan: Path | None = None
    rules: Rules = "model"

    def arguments(self) -> dict[str, Any]:
        """The arguments by name."""
        return asdict(self)


@dataclass(frozen=True)
class WatchRequest:
    """How runs are watched: files to write, and whether the dashboard is shown, and the report in the browser."""

    trace: Path | None = None
    trace_arrows: bool = False
    report: Path | None = None
    dashboard: bool = False
    opened: bool = False


@dataclass(frozen=True)
class StreamRequest:
    """How a run goes band by band: `max_memory` bytes resident, which are a data limit too with `hard`;
    on the cluster with the address `dask`; or on blended windows of `window` elements, with `overlap` and `blend`.
    `spill` says whether tensors may go through files between passes, in the folder `scratch`."""

    max_memory: int | None = None
    resume: bool = False
    hard: bool = False
    dask: str | None = None
    window: tuple[int, ...] | None = None
    overlap: float | None = None
    blend: Blend | None = None
    spill: SpillChoice = "auto"
    scratch: Path | None = None

    def given(self) -> bool:
        """Whether any of it was asked for."""
        return self != StreamRequest()

    def refusal(self) -> str:
        """Why options of blended windows do not go together; empty where they do."""
        alone = {"--overlap": self.overlap is not None, "--blend": self.blend is not None}
        wrong = [option for option, given in alone.items() if given and self.window is None]
        if wrong:
            return f"{wrong[0]} is of use with --window only: add --window 256, or leave it out"
        if self.window is not None and self.dask is not None:
            return "--window is of no use on a cluster: leave it out, or leave out --dask"
        return ""


@dataclass(frozen=True)
class ResultRequest:
    """What is made of outputs: files of what `save` names, of the type `stored` after floats were multiplied with
    `stored_scale`; the `top` likeliest classes, by the names in the file `labels`; `argmax` or `threshold` as the
    model's last step."""

    save: Saved | None = None
    top: int | None = None
    labels: Path | None = None
    stored: str | None = None
    stored_scale: float | None = None
    argmax: int | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class RunRequest:
    """What `brickrt run` is asked for; `verify` compares the outputs with the reference engine's. An `output` that ends
    in a slash is a folder."""

    model: Path
    inputs: InputRequest
    engine: EngineRequest
    output: str | None = None
    repeat: int = 1
    verify: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    watch: WatchRequest = WatchRequest()
    stream: StreamRequest = StreamRequest()
    result: ResultRequest = ResultRequest()

    def files(self) -> dict[str, Path]:
        """The files to write, by option."""
        output = None if self.output is None else Path(self.output)
        return _given({"--output": output, "--trace": self.watch.trace, "--report": self.watch.report})

    def lists(self) -> list[Path]:
        """The files that it reads beside model and inputs."""
        return [path for path in (self.result.labels, self.engine.plan) if path is not None]


@dataclass(frozen=True)
class PlanRequest:
    """What `brickrt plan` is asked for; `compare` sets all strategies side by side, `opened` shows the page in the
    browser, `verbose` tells of all layers."""

    model: Path
    shapes: tuple[str, ...] = ()
    strategy: Strategy = "auto"
    brick: int | None = None
    max_layers: int | None = None
    exact: bool = False
    device_spec: PlannedDevice = "cpu"
    precision: Precision = "fp32"
    rules: Rules = "model"
    compare: bool = False
    html: Path | None = None
    json: bool = False
    output: Path | None = None
    stream: StreamRequest = StreamRequest()
    opened: bool = False
    verbose: bool = False

    def files(self) -> dict[str, Path]:
        """The files to write, by option."""
        return _given({"--html": self.html, "--output": self.output})


@dataclass(frozen=True)
class CompareRequest:
    """What `brickrt compare` is asked for: two reports, and a page of both."""

    first: Path
    second: Path
    html: Path | None = None
    opened: bool = False
    json: bool = False


@dataclass(frozen=True)
class TuneRequest:
    """What `brickrt tune` is asked for; trying plans may take so many `seconds`."""

    model: Path
    shapes: tuple[str, ...] = ()
    seconds: float = 30.0
    threads: int | None = None
    exact: bool = False
    json: bool = False


@dataclass(frozen=True)
class CompileRequest:
    """What `brickrt compile` is asked for: the file to write, and the processors that it is to run on."""

    model: Path
    output: Path
    shapes: tuple[str, ...] = ()
    target: Target = "host"
    exact: bool = False
    precision: CpuPrecision = "fp32"
    json: bool = False


@dataclass(frozen=True)
class QuantizeRequest:
    """What `brickrt quantize` is asked for: inputs to find ranges with, and to compare the result on, which are the
    same where `check` is empty; layers to `keep` in float, by patterns of their names, and those below `sqnr` dB."""

    model: Path
    output: Path
    calibrate: InputRequest
    check: tuple[str, ...] = ()
    method: RangeMethod = "minmax"
    keep: tuple[str, ...] = ()
    sqnr: float | None = None
    threads: int | None = None
    json: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class BenchRequest:
    """What `brickrt bench` is asked for. `model` is a file or a network of the zoo, None all of the zoo; `batch` and
    `size` are the model's own where they are None."""

    model: str | None
    inputs: InputRequest
    engine: EngineRequest
    peers: tuple[str, ...] | None = None
    batch: int | None = None
    size: int | tuple[int, ...] | None = None
    rounds: int = 11
    output: Path | None = None
    json: bool = False


@dataclass(frozen=True)
class DemoRequest:
    """What `brickrt demo` is asked for; `size` is the edge of the photograph in pixels."""

    out: Path
    size: int = 2048
    threads: int | None = None
    seed: int = 0
    runs: int = 3
    json: bool = False


def _given(files: dict[str, Path | None]) -> dict[str, Path]:
    return {option: path for option, path in files.items() if path is not None}
