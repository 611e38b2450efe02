"""The commands. What they do is imported when they run, so that help is there at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from brickrt.cli import options
from brickrt.cli.failure import Failure
from brickrt.cli.inputs import parse
from brickrt.cli.requests import (
    BenchRequest,
    CompareRequest,
    CompileRequest,
    DemoRequest,
    EngineRequest,
    ImageRequest,
    InputRequest,
    PlanRequest,
    QuantizeRequest,
    ResultRequest,
    RunRequest,
    StreamRequest,
    TuneRequest,
    WatchRequest,
)
from brickrt.graph.errors import BrickError
from brickrt.runtime.memory_amount import memory_amount
from brickrt.version import VERSION

PROGRAM = "brickrt"
DEBUG = "--debug"


class Compact(TyperCommand):
    """A command whose help fits a screen: neither FOLDED options nor arguments have a line of their own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the lines of the options that are shown."""
        shown = [p for p in self.params if getattr(p, "rich_help_panel", None) != options.FOLDED]
        rows = [p.get_help_record(ctx) for p in shown if p.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([row for row in rows if row is not None])


class CommandGroup(TyperGroup):
    """All commands, whose help fits a screen too: typer's own words on completion take two lines."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the lines of the options, and those of the commands."""
        option: Any
        for option in self.params:
            if "--show-completion" in option.opts:
                option.help = "Show completion for the current shell."
        super().format_options(ctx, formatter)


def _examples(*lines: str) -> str:
    """The end of a command's help, its lines kept as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {PROGRAM} {line}" for line in lines)


# Without markup, help needs no rich, which takes longer to import than everything else here.
START = _examples(f"demo {DEBUG}    (with any command: shows where errors come from)")  # that help fits a screen
app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, epilog=START)
zoo = typer.Typer(
    rich_markup_mode=None,
    epilog=_examples("zoo list", "zoo export unet unet.onnx"),
    help="The networks that come with brickrt, with seeded random weights.",
)
app.add_typer(zoo, name="zoo")


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
        "run classes.onnx --input photos/ --preset imagenet --top 5",
    ),
)
def run(
    model: options.Model, input: options.RunInputs = [], output: options.Output = None,  # noqa: B006  (typer copies it)
    device: options.Device = "auto", strategy: options.RunStrategy = "auto",
    brick: options.Brick = None, threads: options.FoldedThreads = None,
    max_layers: options.MaxLayers = None, exact: options.Exact = False, rules: options.Rules = "model",
    precision: options.Precision = "fp32", launch: options.Launch = "auto",
    plan: options.SavedPlan = None, repeat: options.Repeat = 1, help_all: options.HelpAll = False,
    random: options.RunRandom = False, seed: options.Seed = None, shape: options.RunShapes = [],  # noqa: B006
    preset: options.Preset = None, mean: options.Mean = None, std: options.Std = None, scale: options.Scale = None,
    layout: options.Layout = None, resize: options.Resize = None, verify: options.Verify = False,
    dashboard: options.Dashboard = False, open: options.Opened = False,
    trace: options.Trace = None, trace_arrows: options.TraceArrows = False, report: options.Report = None,
    max_memory: options.MaxMemory = None, resume: options.Resume = False, hard: options.Hard = False,
    stored_as: options.StoredAs = None, dask: options.Dask = None,
    spill: options.Spill = "auto", scratch: options.Scratch = None,
    argmax: options.ArgMax = None, threshold: options.Threshold = None,
    save: options.SavedAs = None, top: options.Top = None, labels: options.Labels = None,
    window: options.Window = None, overlap: options.Overlap = None, blend: options.BlendName = None,
    json: options.RunJson = False, quiet: options.Quiet = False, verbose: options.Verbose = False,
) -> str | Failure:  # fmt: skip
    """Run MODEL, an .onnx file, on files. --help-all: a line for each option."""
    means, deviations, size = parse.numbers("--mean", mean), parse.deviations(std), parse.height_width(resize)
    image = ImageRequest(preset=preset, mean=means, std=deviations, scale=scale, layout=layout, resize=size)
    inputs = InputRequest(files=tuple(input), random=random, seed=seed, shapes=tuple(shape), image=image)
    engine = EngineRequest(
        device=device, strategy=strategy, brick=brick, threads=threads, max_layers=max_layers, exact=exact,
        precision=precision, launch=launch, plan=plan, rules=rules)  # fmt: skip
    watch = WatchRequest(trace=trace, trace_arrows=trace_arrows, report=report, dashboard=dashboard, opened=open)
    limit, extents = memory_amount("--max-memory", max_memory), parse.window(window)
    stream = StreamRequest(
        max_memory=limit, resume=resume, hard=hard, dask=dask, window=extents, overlap=overlap, blend=blend,
        spill=spill, scratch=scratch)  # fmt: skip
    kind, factor = parse.stored_as(stored_as)
    result = ResultRequest(
        save=save, top=top, labels=labels, stored=kind, stored_scale=factor, argmax=argmax,
        threshold=threshold)  # fmt: skip
    request = RunRequest(
        model=model, inputs=inputs, engine=engine, output=output, repeat=repeat, verify=verify, json=json, quiet=quiet,
        verbose=verbose, watch=watch, stream=stream, result=result)  # fmt: skip
    return _work("run", request, threads=threads)


@app.command(
    cls=Compact,
    epilog=_examples(
        "plan model.onnx --shape x=1,3,512,512",
        "plan model.onnx --compare",
        "plan model.onnx --html plan.html",
    ),
)
def plan(
    model: options.Model,
    shape: options.Shapes = [],  # noqa: B006
    strategy: options.Strategy = "auto",
    brick: options.Brick = None,
    max_layers: options.MaxLayers = None,
    exact: options.Exact = False,
    rules: options.Rules = "model",
    device_spec: options.DeviceSpec = "cpu",
    precision: options.PlanPrecision = "fp32",
    compare: options.Compare = False,
    html: options.Html = None,
    open: options.PlanOpened = False,
    output: options.PlanOutput = None,
    save: options.OldPlanOutput = None,
    max_memory: options.PlanMemory = None,
    spill: options.Spill = "auto",
    scratch: options.Scratch = None,
    window: options.Window = None,
    overlap: options.Overlap = None,
    blend: options.BlendName = None,
    json: options.Json = False,
    verbose: options.PlanVerbose = False,
) -> str | Failure:
    """Print what of an .onnx file would run, where and why; nothing is run."""
    stream = StreamRequest(
        max_memory=memory_amount("--max-memory", max_memory), window=parse.window(window), overlap=overlap, blend=blend,
        spill=spill, scratch=scratch,
    )  # fmt: skip
    request = PlanRequest(
        model=model, shapes=tuple(shape), strategy=strategy, brick=brick, max_layers=max_layers, exact=exact,
        device_spec=device_spec, precision=precision, rules=rules, compare=compare, html=html, json=json,
        output=output or save, stream=stream, opened=open, verbose=verbose,
    )  # fmt: skip
    return _work("bounded.plan" if stream.given() else "plan", request)


@app.command(
    cls=Compact,
    epilog=_examples("tune model.onnx", "tune model.onnx --shape x=1,3,512,512 --seconds 60"),
)
def tune(
    model: options.Model,
    seconds: options.Seconds = 30.0,
    shape: options.Shapes = [],  # noqa: B006
    threads: options.TuneThreads = None,
    exact: options.Exact = False,
    json: options.Json = False,
) -> str | Failure:
    """Choose the plan of MODEL by running it, on this processor.

    Later runs with these shapes use the plan: brickrt plan prints it.
    """
    request = TuneRequest(
        model=model, shapes=tuple(shape), seconds=seconds, threads=threads, exact=exact, json=json
    )  # fmt: skip
    return _work("tune", request, threads=threads)


@app.command(
    "compile",
    cls=Compact,
    epilog=_examples(
        "compile model.onnx -o model.brick --shape x=1,3,512,512",
        "compile model.onnx -o model.brick --target avx2",
    ),
)
def compile_(
    model: options.Model,
    output: options.CompileOut,
    shape: options.Shapes = [],  # noqa: B006
    target: options.Target = "host",
    exact: options.Exact = False,
    precision: options.CpuPrecision = "fp32",
    json: options.Json = False,
) -> str | Failure:
    """Write MODEL, an .onnx file, as one file that starts at once.

    It holds code and weights: brickrt run takes it, and so does
    brickrt.CompiledModel.
    """
    request = CompileRequest(
        model=model, output=output, shapes=tuple(shape), target=target, exact=exact, precision=precision, json=json
    )
    return _work("compile", request)


@app.command(
    cls=Compact,
    epilog=_examples("quantize model.onnx --calibrate photos/ -o int8.onnx"),
)
def quantize(
    model: options.Model,
    calibrate: options.Calibration,
    output: options.QuantizedOut,
    check: options.Checked = [],  # noqa: B006
    method: options.RangesBy = "minmax",
    keep: options.Kept = [],  # noqa: B006
    sqnr: options.LeastSqnr = None,
    preset: options.Preset = None, mean: options.Mean = None, std: options.Std = None, scale: options.Scale = None,
    layout: options.Layout = None, resize: options.Resize = None,
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.QuantizeVerbose = False,
) -> str | Failure:  # fmt: skip
    """Write MODEL, of float32, as one of bytes; tell what that costs."""
    image = ImageRequest(
        preset=preset, mean=parse.numbers("--mean", mean), std=parse.deviations(std), scale=scale, layout=layout,
        resize=parse.height_width(resize),
    )  # fmt: skip
    request = QuantizeRequest(
        model=model, output=output, calibrate=InputRequest(files=tuple(calibrate), image=image), check=tuple(check),
        method=method, keep=tuple(keep), sqnr=sqnr, threads=threads, json=json, verbose=verbose,
    )  # fmt: skip
    return _work("quantize", request, threads=threads)


@app.command(
    cls=Compact,
    epilog=_examples(
        "bench model.onnx --threads 1",
        "bench resnet50 --size 320 --peers onnxruntime",
    ),
)
def bench(
    model: options.BenchModel = None,
    zoo: options.Zoo = False,
    peers: options.Peers = None,
    threads: options.BenchThreads = None,
    rounds: options.Rounds = 11,
    input: options.Inputs = [],  # noqa: B006
    seed: options.Seed = None,
    shape: options.Shapes = [],  # noqa: B006
    batch: options.OpenBatch = None,
    size: options.ZooSize = None,
    strategy: options.Strategy = "auto",
    brick: options.Brick = None,
    max_layers: options.MaxLayers = None,
    exact: options.Exact = False,
    rules: options.Rules = "model",
    precision: options.BenchPrecision = "fp32",
    output: options.BenchOutput = None,
    json: options.Json = False,
) -> str | Failure:
    """Time an .onnx file, or a network of the zoo, beside other runtimes.

    Ratios above 1 say that brickrt is faster.
    """
    if (model is None) != zoo:
        raise BrickError("bench takes a MODEL, or --zoo alone: give one of them")
    request = BenchRequest(
        model=model,
        inputs=InputRequest(files=tuple(input), random=not input, seed=seed, shapes=tuple(shape)),
        engine=EngineRequest(
            device="cpu", strategy=strategy, brick=brick, threads=threads, max_layers=max_layers, exact=exact,
            precision=precision, rules=rules,
        ),
        peers=parse.names(peers), batch=batch, size=parse.spatial_size(size), rounds=rounds, output=output, json=json,
    )  # fmt: skip
    return _work("bench", request, threads=threads)


@app.command(cls=Compact, epilog=_examples("compare before.html after.html --html both.html --open"))
def compare(
    first: options.FirstReport,
    second: options.SecondReport,
    html: options.ComparedHtml = None,
    open: options.PlanOpened = False,
    json: options.Json = False,
) -> str | Failure:
    """Set two reports of brickrt run --report side by side."""
    return _work("compare", CompareRequest(first=first, second=second, html=html, opened=open, json=json))


@app.command(cls=Compact, epilog=_examples("demo", "demo --size 1024 --output folder --json"))
def demo(
    out: options.DemoOut = Path("brickrt-demo"),
    size: options.PhotoSize = 2048,
    threads: options.Threads = None,
    seed: options.NoiseSeed = 0,
    runs: options.Runs = 3,
    json: options.Json = False,
) -> str | Failure:
    """Take the noise out of a photograph; compare with other ways to run it."""
    request = DemoRequest(out=out, size=size, threads=threads, seed=seed, runs=runs, json=json)
    return _work("demo", request, threads=threads)


@app.command(cls=Compact, epilog=_examples("doctor", "doctor --calibrate --json"))
def doctor(calibrate: options.Calibrate = False, json: options.Json = False) -> str | Failure:
    """Print devices, their speeds, caches, libraries, and what is missing."""
    return _work("doctor", json, calibrate)


@zoo.command("list", cls=Compact, epilog=_examples("zoo list", "zoo list --json"))
def zoo_list(json: options.Json = False) -> str | Failure:
    """Print the networks."""
    return _work("zoo_list", json)


@zoo.command(
    "export",
    cls=Compact,
    epilog=_examples("zoo export resnet50 resnet50.onnx --size 320", "zoo export unet u.onnx --batch 0 --size 0"),
)
def zoo_export(
    name: options.ZooName,
    out: options.ExportOut,
    batch: options.ExportBatch = 1,
    size: options.ExportSize = None,
    seed: options.WeightSeed = 0,
) -> str | Failure:
    """Write a network, one of brickrt zoo list, as an ONNX file."""
    return _work("zoo_export", name, out, batch, parse.spatial_size(size, may_be_open=True), seed)


def _work(module: str, *args: Any, threads: int | None = None) -> str | Failure:
    """Calls `command` of brickrt.cli.commands.<module>, which runs on so many threads if they were asked for."""
    result = import_module(f"brickrt.cli.commands.{module}").command(*args)
    if threads is not None:
        import_module("brickrt.cli.terminal.threads").note_threads(threads)
    return result
