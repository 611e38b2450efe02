"""`brickrt run --help-all`: a line for each option, also for those that --help names in the line of another."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import typer

WIDTH = 100
RUN: Mapping[str, Mapping[str, str]] = {
    "Inputs": {
        "--input": "A file, a folder, or a pattern in quotes; again for several inputs.",
        "--random": "Make inputs up instead.",
        "--seed": "Of --random: other numbers, other values.",
        "--shape": "Of an input of --random; open dimensions are 1 else.",
    },
    "Values of pictures and volumes": {
        "--preset": "What a family of networks takes: imagenet, clip, unit, raw, ct.",
        "--mean": "Subtracted from each channel, after the scale.",
        "--std": "What each channel is divided by then.",
        "--scale": "What values are multiplied with first; 1/255 for bytes.",
        "--resize": "The height and width that pictures are brought to.",
        "--layout": "Where channels are: nchw (first) or nhwc (last).",
    },
    "Device and plan": {
        "--device": "auto, cpu, cuda; reference computes with NumPy.",
        "--precision": "Of products: fp32, bf16; of GPUs tf32 and fp16 too.",
        "--threads": "One per core by default.",
        "--strategy": "How layers are computed: auto, layerwise, padded, memoized, fused.",
        "--brick": "Edge of a brick in pixels.",
        "--max-layers": "The most convolutions and products that are merged.",
        "--exact": "No algorithms that round otherwise, such as Winograd's.",
        "--rules": "What auto goes by: model, brickdl or unfused.",
        "--plan": "A plan of brickrt plan --output in place of all these.",
        "--launch": "How a GPU runs plans: auto, streams, dynamic, graph, persistent.",
    },
    "Bounded memory and windows": {
        "--max-memory": "Run band by band, from file to file, in so much: 1GiB, 700MiB.",
        "--resume": "Go on with a run that was ended; begin where there is none.",
        "--hard": "The system refuses memory beyond the limit (Linux).",
        "--spill": "auto: between passes through files if that is quicker; never.",
        "--scratch": "The folder of such files; beside the output else.",
        "--dask": "Run on a cluster: a scheduler's address, or local:4.",
        "--window": "Run on overlapping windows of so many pixels, and blend them.",
        "--overlap": "The share of a window that the next one has too; 0.5 else.",
        "--blend": "Weights of windows: gaussian or constant.",
    },
    "Results": {
        "--output": "A file, whose name says its format; a folder for several.",
        "--as": "The type of files, and what floats are multiplied with: uint8:255.",
        "--argmax": "The position of the greatest along an axis, as classes of pixels.",
        "--threshold": "1 where values are greater, else 0.",
        "--save": "What --output gets: labels, mask or overlay.",
        "--top": "Print so many likeliest classes.",
        "--labels": "A file with a class name a line, for --top.",
        "--json": "Print one JSON object and nothing else.",
        "--quiet": "Print nothing but errors.",
        "--verbose": "Print the plan and more figures.",
    },
    "Measuring and watching": {
        "--repeat": "How often to run; the first of several warms up.",
        "--verify": "Compare the outputs with those of the reference engine.",
        "--dashboard": "Show the run while it goes on.",
        "--report": "Write a page about the run.",
        "--open": "Show that page in the browser.",
        "--trace": "Write when which task ran, for Perfetto.",
        "--trace-arrows": "With what each task waited for.",
    },
}


def show_all(ctx: typer.Context, value: bool) -> None:
    """Prints all options of `brickrt run` in groups, and ends the command."""
    if not value:
        return
    command: Any = ctx.command
    named = {name: param for param in command.params for name in param.opts}
    formatter: Any = ctx.make_formatter()
    formatter.width = min(WIDTH, shutil.get_terminal_size().columns)
    command.format_usage(ctx, formatter)
    for heading, lines in RUN.items():
        with formatter.section(heading):
            formatter.write_dl([(_form(named[name], ctx), text) for name, text in lines.items()])
    typer.echo(formatter.getvalue().rstrip("\n"))
    raise typer.Exit


def _form(option: Any, ctx: typer.Context) -> str:
    """The option as it is written, with the name of its value."""
    return str(option.get_help_record(ctx)[0])
