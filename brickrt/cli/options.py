"""Options and arguments of the commands: their types, names and help.

A command's help fits a screen: options that are FOLDED have no line of their own, another option's help names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickrt.cli import completions, requests
from brickrt.cli.all_options import show_all

FOLDED = "named in the help of another option"  # as the panel of an option

HelpAll = Annotated[bool, typer.Option("--help-all", callback=show_all, is_eager=True, rich_help_panel=FOLDED)]

# ---- the model and its plan

Model = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False)]
BenchModel = Annotated[str | None, typer.Argument(metavar="MODEL", show_default=False)]
Device = Annotated[
    requests.Device,
    typer.Option(metavar="NAME", show_default=False, help="auto, cpu, cuda; --precision fp32, bf16; tf32, fp16."),
]
DeviceSpec = Annotated[
    requests.PlannedDevice,
    typer.Option(metavar="NAME", show_default=False, help="cpu (this one), h200, h100, a100, l40s, rtx4090."),
]
Strategy = Annotated[
    requests.Strategy,
    typer.Option(metavar="HOW", show_default=False, help="auto, layerwise, padded, memoized or fused."),
]
RunStrategy = Annotated[
    requests.Strategy,
    typer.Option(metavar="HOW", show_default=False, help="auto, layerwise, padded, memoized, fused; --plan FILE."),
]
Brick = Annotated[int | None, typer.Option(metavar="N", help="Edge; --max-layers N, --exact, --rules brickdl.")]
MaxLayers = Annotated[int | None, typer.Option(metavar="N", rich_help_panel=FOLDED)]
Rules = Annotated[requests.Rules, typer.Option(metavar="NAME", show_default=False, rich_help_panel=FOLDED)]
Exact = Annotated[bool, typer.Option("--exact", rich_help_panel=FOLDED)]
Precision = Annotated[requests.Precision, typer.Option(metavar="NAME", show_default=False, rich_help_panel=FOLDED)]
PlanPrecision = Annotated[
    requests.Precision, typer.Option(metavar="NAME", show_default=False, help="fp32, bf16; of GPUs tf32, fp16 too.")
]
CpuPrecision = Annotated[
    requests.CpuPrecision, typer.Option(metavar="NAME", show_default=False, help="fp32, or products of bf16.")
]
BenchPrecision = Annotated[
    requests.CpuPrecision, typer.Option(metavar="NAME", show_default=False, rich_help_panel=FOLDED)
]
Launch = Annotated[
    requests.Launch,
    typer.Option(metavar="NAME", show_default=False, help="Of GPUs: auto, streams, dynamic, graph or persistent."),
]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Threads; one per core by default.")]
TuneThreads = Annotated[int | None, typer.Option(metavar="N", help="Threads; one per core by default; --exact.")]
BenchThreads = Annotated[int | None, typer.Option(metavar="N", help="One per core by default; --precision fp32, bf16.")]
FoldedThreads = Annotated[int | None, typer.Option(metavar="N", rich_help_panel=FOLDED)]

# ---- inputs

Inputs = Annotated[list[str], typer.Option(metavar="[NAME=]FILE", help="Picture, .npy, .npz, .tif, .nii, .zarr, .h5.")]
RunInputs = Annotated[
    list[str], typer.Option("--input", metavar="[NAME=]FILE", help="Pictures, .npy, .npz, .tif, .nii, .zarr; a folder.")
]
Preset = Annotated[
    requests.Preset | None,
    typer.Option(metavar="NAME", show_default=False, help="imagenet, clip, unit, raw, ct; --layout nchw or nhwc."),
]
Shapes = Annotated[
    list[str], typer.Option("--shape", metavar="NAME=1,3,224,224", help="Of an input; open dimensions are 1.")
]
RunShapes = Annotated[list[str], typer.Option("--shape", metavar="NAME=1,3,224,224", rich_help_panel=FOLDED)]
RunRandom = Annotated[bool, typer.Option("--random", help="Make up inputs; --seed N, --shape x=1,3,64,64 (else 1).")]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", rich_help_panel=FOLDED)]
NoiseSeed = Annotated[int, typer.Option(min=0, metavar="N", help="Of the noise.")]
Mean = Annotated[str | None, typer.Option(metavar="A,B,C", help="Also --std A,B,C, --scale X (1/255), --resize HxW.")]
Std = Annotated[str | None, typer.Option(metavar="A,B,C", rich_help_panel=FOLDED)]
Scale = Annotated[float | None, typer.Option(metavar="X", rich_help_panel=FOLDED)]
Layout = Annotated[requests.ImageLayout | None, typer.Option(metavar="NAME", rich_help_panel=FOLDED)]
Resize = Annotated[str | None, typer.Option(metavar="HxW", rich_help_panel=FOLDED)]
PhotoSize = Annotated[int, typer.Option(metavar="N", help="Edge of the photograph in pixels.")]

# ---- runs in bounded memory

MaxMemory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="In bands: --resume, --hard, --dask, --spill, --scratch.")
]
PlanMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="In bands, in 1GiB; --spill, --scratch FOLDER.")]
Resume = Annotated[bool, typer.Option("--resume", rich_help_panel=FOLDED)]
Hard = Annotated[bool, typer.Option("--hard", rich_help_panel=FOLDED)]
Spill = Annotated[requests.SpillChoice, typer.Option("--spill", metavar="WHEN", rich_help_panel=FOLDED)]
Scratch = Annotated[Path | None, typer.Option("--scratch", metavar="FOLDER", rich_help_panel=FOLDED)]
Dask = Annotated[str | None, typer.Option(metavar="ADDRESS", rich_help_panel=FOLDED)]
StoredAs = Annotated[
    str | None, typer.Option("--as", metavar="TYPE", help="Of files, as uint8:255; --argmax N, --threshold X.")
]
ArgMax = Annotated[int | None, typer.Option(metavar="AXIS", rich_help_panel=FOLDED)]
Threshold = Annotated[float | None, typer.Option(metavar="X", rich_help_panel=FOLDED)]
Window = Annotated[str | None, typer.Option(metavar="N", help="Blended windows, of 256; --overlap X, --blend HOW.")]
Overlap = Annotated[float | None, typer.Option(metavar="X", rich_help_panel=FOLDED)]
BlendName = Annotated[requests.Blend | None, typer.Option("--blend", metavar="NAME", rich_help_panel=FOLDED)]

# ---- networks of the zoo

Zoo = Annotated[bool, typer.Option("--zoo", help="Measure every network of the zoo.")]
ZooName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=completions.zoo_names)]
ZooSize = Annotated[str | None, typer.Option(metavar="N or DxHxW", help="Spatial size, of zoo networks.")]
ExportSize = Annotated[str | None, typer.Option(metavar="N or DxHxW", help="Spatial size; 0 leaves it open.")]
OpenBatch = Annotated[int | None, typer.Option(min=1, metavar="N", help="Batch size, where it is open.")]
ExportBatch = Annotated[int, typer.Option(min=0, help="Batch size; 0 leaves it open.")]
WeightSeed = Annotated[int, typer.Option(min=0, help="Of the weights.")]

# ---- how often, and beside whom

Repeat = Annotated[
    int, typer.Option(min=1, metavar="N", show_default=False, help="How often; --threads N: one per core; --verify.")
]
Rounds = Annotated[int, typer.Option(min=1, metavar="N", help="Timed runs of each engine; --seed N: of inputs.")]
Runs = Annotated[int, typer.Option(min=1, metavar="N", help="Timed runs of each engine; fewer if they are long.")]
Seconds = Annotated[float, typer.Option(metavar="S", help="What trying plans may take.")]
Peers = Annotated[
    str | None,
    typer.Option(
        "--peers",
        "--against",
        metavar="A,B",
        help="Of onnxruntime, openvino, torch; all by default.",
        autocompletion=completions.peer_names,
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="All strategies side by side.")]
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Measure this machine's speeds again.")]

# ---- what is compiled

CompileOut = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT.brick", show_default=False, help="The file to write.")
]
Target = Annotated[
    requests.Target,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="host (this processor), avx512, avx2, generic; --exact.",
        autocompletion=completions.compiled_targets,
    ),
]

# ---- what is quantized

QuantizedOut = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT.onnx", show_default=False, help="The file to write.")
]
Calibration = Annotated[
    list[str], typer.Option("--calibrate", metavar="[NAME=]FILES", help="Typical inputs: a folder, a pattern, a file.")
]
Checked = Annotated[
    list[str], typer.Option("--check", metavar="[NAME=]FILES", help="Others to compare on; else the same.")
]
RangesBy = Annotated[
    requests.RangeMethod,
    typer.Option(metavar="NAME", show_default=False, help="Of ranges: minmax, entropy, percentile."),
]
Kept = Annotated[list[str], typer.Option("--keep", metavar="LAYER", help="Stays in float; also as '/head/*'.")]
LeastSqnr = Annotated[float | None, typer.Option("--sqnr", metavar="DB", help="Layers below stay in float.")]
QuantizeVerbose = Annotated[bool, typer.Option("--verbose", "-v", help="All layers.")]

# ---- what comes out

Output = Annotated[str | None, typer.Option(metavar="FILE", help="To write, by its name's end; a folder for several.")]
SavedAs = Annotated[
    requests.Saved | None,
    typer.Option("--save", metavar="WHAT", help="labels, mask, overlay; or --top N, --labels FILE."),
]
Top = Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=FOLDED)]
Labels = Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=FOLDED)]
RunJson = Annotated[bool, typer.Option("--json", help="Print one JSON object; or --quiet, or -v, --verbose.")]
Quiet = Annotated[bool, typer.Option("--quiet", rich_help_panel=FOLDED)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", rich_help_panel=FOLDED)]
BenchOutput = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the figures to a file too.")]
DemoOut = Annotated[
    Path, typer.Option("--output", "-o", "--out", metavar="FOLDER", help="Where pictures and report go.")
]
ExportOut = Annotated[Path, typer.Argument(metavar="OUT.onnx", show_default=False)]
Verify = Annotated[bool, typer.Option("--verify", rich_help_panel=FOLDED)]  # compares with the reference engine
Dashboard = Annotated[bool, typer.Option("--dashboard", help="Or --report F.html, --open, --trace F, --trace-arrows.")]
Trace = Annotated[Path | None, typer.Option(metavar="FILE.json", rich_help_panel=FOLDED)]  # for Perfetto
TraceArrows = Annotated[bool, typer.Option("--trace-arrows", rich_help_panel=FOLDED)]
Report = Annotated[Path | None, typer.Option(metavar="FILE.html", rich_help_panel=FOLDED)]
Opened = Annotated[bool, typer.Option("--open", rich_help_panel=FOLDED)]
PlanOpened = Annotated[bool, typer.Option("--open", help="Show the page in the browser.")]
PlanVerbose = Annotated[bool, typer.Option("--verbose", "-v", help="All layers, and the reasons.")]
FirstReport = Annotated[Path, typer.Argument(metavar="FIRST.html", show_default=False)]
SecondReport = Annotated[Path, typer.Argument(metavar="SECOND.html", show_default=False)]
ComparedHtml = Annotated[Path | None, typer.Option("--html", metavar="FILE.html", help="Write it as a page.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the plan as a page.")]
PlanOutput = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="Keep the plan, for run --plan.")
]
OldPlanOutput = Annotated[Path | None, typer.Option("--save", hidden=True)]  # what --output was called before
SavedPlan = Annotated[Path | None, typer.Option(metavar="FILE.json", rich_help_panel=FOLDED)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
