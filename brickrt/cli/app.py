"""The commands and their options. What they do is imported when they run, so that help is there at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from brickrt.cli.inputs import parse
from brickrt.cli.requests import (
    BenchRequest,
    DemoRequest,
    Device,
    EngineRequest,
    ImageLayoutOption,
    ImageRequest,
    InputRequest,
    LaunchOption,
    PlanRequest,
    Precision,
    RunRequest,
    Strategy,
    WatchRequest,
)
from brickrt.version import VERSION

PROGRAM = "brickrt"
DEBUG = "--debug"
EPILOG = f"With {DEBUG}, any command shows where an error comes from."


FOLDED = "named in the help of another option"  # as the panel of an option


class Compact(TyperCommand):
    """A command whose help fits a screen: options that are FOLDED have no line of their own, nor do arguments."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = [p for p in self.params if getattr(p, "rich_help_panel", None) != FOLDED]
        rows = [p.get_help_record(ctx) for p in shown if p.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([row for row in rows if row is not None])


def _examples(*lines: str) -> str:
    """The end of a command's help, its lines kept as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {PROGRAM} {line}" for line in lines)


# Without markup, help needs no rich, which takes longer to import than everything else here.
START = _examples("demo", "zoo export nafnet nafnet.onnx --size 256")
app = typer.Typer(rich_markup_mode=None, epilog=f"{START}\n\n{EPILOG}")
zoo = typer.Typer(
    rich_markup_mode=None,
    epilog=_examples("zoo list", "zoo export unet unet.onnx"),
    help="The networks that come with brickrt, with seeded random weights.",
)
app.add_typer(zoo, name="zoo")

Model = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
StrategyOption = Annotated[
    Strategy, typer.Option(metavar="HOW", show_default=False, help="auto, layerwise, padded or memoized.")
]
Brick = Annotated[int | None, typer.Option(metavar="N", help="Edge of bricks; also --max-layers N and --exact.")]
MaxLayers = Annotated[int | None, typer.Option(metavar="N", rich_help_panel=FOLDED)]
PrecisionOption = Annotated[
    Precision, typer.Option("--precision", metavar="NAME", show_default=False, rich_help_panel=FOLDED)
]
Exact = Annotated[bool, typer.Option("--exact", rich_help_panel=FOLDED)]
Shapes = Annotated[
    list[str], typer.Option("--shape", metavar="NAME=1,3,224,224", help="Of an input; open dimensions are 1.")
]
Inputs = Annotated[
    list[str],
    typer.Option(metavar="[NAME=]FILE", help="A .npy, .npz, .png or .jpg; several: name them."),
]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", rich_help_panel=FOLDED)]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Threads; one per core by default.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"{PROGRAM} {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Runs ONNX networks brick by brick, across layers."""


@app.command(
    cls=Compact,
    epilog=_examples(
        "run model.onnx --input a=photo.png --input b=2.npy --output out.npz",
        "run model.onnx --random --shape x=1,3,512,512 --repeat 9 --dashboard",
    ),
)
def run(
    model: Model,
    input: Inputs = [],  # noqa: B006  (typer copies it)
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="A .npy or .npz file to write.")] = None,
    device: Annotated[
        Device,
        typer.Option(metavar="NAME", show_default=False, help="auto, cpu, cuda (with --precision and --launch)."),
    ] = Device.auto,
    strategy: StrategyOption = Strategy.auto,
    brick: Brick = None,
    threads: Annotated[int | None, typer.Option(metavar="N", rich_help_panel=FOLDED)] = None,
    max_layers: MaxLayers = None,
    exact: Exact = False,
    precision: PrecisionOption = Precision.fp32,
    launch: Annotated[
        LaunchOption, typer.Option(metavar="NAME", show_default=False, rich_help_panel=FOLDED)
    ] = LaunchOption.auto,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", show_default=False, help="How often; --threads N: one per core.")
    ] = 1,
    random: Annotated[bool, typer.Option("--random", help="Make up the inputs; --seed N: others.")] = False,
    seed: Seed = None,
    shape: Shapes = [],  # noqa: B006
    mean: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Of images; also --std A,B,C and --scale X (1/255).")
    ] = None,
    std: Annotated[str | None, typer.Option(metavar="A,B,C", rich_help_panel=FOLDED)] = None,
    scale: Annotated[float | None, typer.Option(metavar="X", rich_help_panel=FOLDED)] = None,
    layout: Annotated[ImageLayoutOption | None, typer.Option(metavar="NAME", rich_help_panel=FOLDED)] = None,
    resize: Annotated[
        str | None, typer.Option(metavar="HxW", help="Of images, only when asked; --layout nchw or nhwc.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the reference engine (slow).")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Watch it run.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="For Perfetto; --trace-arrows: dependencies too.")
    ] = None,
    trace_arrows: Annotated[bool, typer.Option("--trace-arrows", rich_help_panel=FOLDED)] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page of plan and times.")] = None,
    json: Json = False,
) -> str:
    """Run MODEL, an .onnx file; print outputs, latency and plan."""
    image = ImageRequest(
        parse.numbers("--mean", mean), parse.deviations(std), scale, layout, parse.height_width(resize)
    )
    inputs = InputRequest(tuple(input), random, seed, tuple(shape), image)
    engine = EngineRequest(
        device.value, strategy.value, brick, threads, max_layers, exact, precision.value, launch.value
    )
    watch = WatchRequest(trace, trace_arrows, report, dashboard)
    return _work("run", RunRequest(model, inputs, engine, output, repeat, verify, json, watch))


@app.command(
    cls=Compact,
    epilog=_examples(
        "plan model.onnx --shape x=1,3,512,512",
        "plan model.onnx --compare",
        "plan model.onnx --html plan.html",
    ),
)
def plan(
    model: Model,
    shape: Shapes = [],  # noqa: B006
    strategy: StrategyOption = Strategy.auto,
    brick: Brick = None,
    max_layers: MaxLayers = None,
    exact: Exact = False,
    device_spec: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="h200, h100, a100, l40s, rtx4090; also --precision.")
    ] = "cpu",
    precision: PrecisionOption = Precision.fp32,
    compare: Annotated[bool, typer.Option("--compare", help="All strategies side by side.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the plan as a page.")] = None,
    json: Json = False,
) -> str:
    """Print what of an .onnx file would run, where and why; nothing is run."""
    output = compare, html, json
    request = PlanRequest(
        model, tuple(shape), strategy.value, brick, max_layers, exact, device_spec, precision.value, *output
    )
    return _work("plan", request)


@app.command(
    cls=Compact,
    epilog=_examples(
        "bench model.onnx --threads 1",
        "bench resnet50 --size 320 --peers onnxruntime",
    ),
)
def bench(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", show_default=False)] = None,
    zoo: Annotated[bool, typer.Option("--zoo", help="Measure every network of the zoo.")] = False,
    peers: Annotated[
        str | None,
        typer.Option("--peers", "--against", metavar="A,B", help="Of onnxruntime, openvino, torch; all by default."),
    ] = None,
    threads: Threads = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Timed runs of each engine; --seed N: of inputs.")
    ] = 11,
    input: Inputs = [],  # noqa: B006
    seed: Seed = None,
    shape: Shapes = [],  # noqa: B006
    batch: Annotated[int | None, typer.Option(min=1, metavar="N", help="Batch size, where it is open.")] = None,
    size: Annotated[str | None, typer.Option(metavar="N or DxHxW", help="Spatial size, of zoo networks.")] = None,
    strategy: StrategyOption = Strategy.auto,
    brick: Brick = None,
    max_layers: MaxLayers = None,
    exact: Exact = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the figures to a file too.")] = None,
    json: Json = False,
) -> str:
    """Time an .onnx file, or a network of the zoo, beside other runtimes.

    Ratios above 1 say that brickrt is faster.
    """
    if (model is None) != zoo:
        raise typer.BadParameter("give a MODEL, or --zoo alone")
    inputs = InputRequest(tuple(input), not input, seed, tuple(shape))
    engine = EngineRequest("cpu", strategy.value, brick, threads, max_layers, exact)
    spatial = None if size is None else parse.extents("--size", size, "224, or 16x112x112")
    request = BenchRequest(model, inputs, engine, parse.names(peers), batch, spatial, rounds, output, json)
    return _work("bench", request)


@app.command(cls=Compact, epilog=_examples("demo", "demo --size 1024 --out folder --json"))
def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where pictures and report go.")] = Path("brickrt-demo"),
    size: Annotated[int, typer.Option(metavar="N", help="Edge of the photograph in pixels, even.")] = 2048,
    threads: Threads = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the noise.")] = 0,
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Timed runs of each engine; fewer if they are long.")
    ] = 3,
    json: Json = False,
) -> str:
    """Take the noise out of a photograph; compare with other ways to run it."""
    return _work("demo", DemoRequest(out, size, threads, seed, runs, json))


@app.command(cls=Compact, epilog=_examples("doctor", "doctor --calibrate --json"))
def doctor(
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure this machine's speeds again.")] = False,
    json: Json = False,
) -> str:
    """Print devices, their speeds, caches, libraries, and what is missing."""
    return _work("doctor", json, calibrate)


@zoo.command("list", cls=Compact, epilog=_examples("zoo list", "zoo list --json"))
def zoo_list(json: Json = False) -> str:
    """Print the networks."""
    return _work("zoo_list", json)


@zoo.command(
    "export",
    cls=Compact,
    epilog=_examples("zoo export resnet50 resnet50.onnx --size 320", "zoo export unet u.onnx --batch 0"),
)
def zoo_export(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT.onnx", show_default=False)],
    batch: Annotated[int, typer.Option(min=0, help="Batch size; 0 leaves it open.")] = 1,
    size: Annotated[str | None, typer.Option(metavar="N or DxHxW", help="Spatial size of the input.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights.")] = 0,
) -> str:
    """Write a network, one of brickrt zoo list, as an ONNX file."""
    spatial = None if size is None else parse.extents("--size", size, "224, or 16x112x112")
    return _work("zoo_export", name, out, batch, spatial, seed)


def _work(module: str, *args: Any) -> str:
    """Calls `command` of brickrt.cli.<module>."""
    return import_module(f"brickrt.cli.commands.{module}").command(*args)
