"""The half of a runtime that has a Dask client: its files are read and written by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import Model, SourceGraph
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cluster.cluster_job import ClusterInput
from brickrt.runtime.cluster.cluster_workers import check_client
from brickrt.runtime.cluster.run_on_cluster import ClusterOptions, ClusterReport, run_on_cluster
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress
from brickrt.runtime.stream.stream_files import named
from brickrt.runtime.stream.stream_report import StreamOptions, check_options
from brickrt.runtime.windows.window_options import WindowOptions


@dataclass(frozen=True)
class ClusterStream:
    """Runs one model from files to files on the workers that `client` knows; they load the model themselves."""

    client: Any
    model: str | Path | bytes
    plan: PlanOptions
    progress: Progress | None = None

    def run(
        self,
        names: list[str],
        inputs: Any,
        outputs: Mapping[str, str | Path],
        asked: StreamOptions,
        windows: WindowOptions | None = None,
    ) -> ClusterReport:
        """Runs it on files, whose paths all workers see; `names` are those of the model's inputs. Raises BrickError,
        for windows too, which run in one process."""
        check_options(asked)
        if windows is not None:
            raise BrickError("window is of no use on a cluster: leave it out, or leave out the client")
        files = named("inputs", inputs, names)
        for name, one in files.items():
            if not isinstance(one, str | Path | ClusterInput):
                kind = type(one).__name__
                raise BrickError(f"input '{name}' is a {kind}: give a path, which workers of a cluster read")
        options = ClusterOptions(asked.max_memory, asked.stored, asked.scale, asked.resume, self.plan)
        options = replace(options, spill=asked.spill, scratch=asked.scratch)
        return run_on_cluster(self.client, self.model, files, outputs, options, self.progress)


def cluster_stream(
    client: Any, model: SourceGraph | Model, pipeline: Pipeline, unfit: Mapping[str, object]
) -> ClusterStream | None:
    """None without a client. Raises BrickError where that is none, for options that workers do not take (`unfit`, where
    they are given), and for models that they cannot load."""
    if client is None:
        return None
    check_client(client)
    unfit = {"device": pipeline.engine.name != "cpu", **unfit}
    given = [name for name, value in unfit.items() if value]
    if given:
        raise BrickError(f"{given[0]} is of no use on a cluster: leave it out, or leave out the client")
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    if not isinstance(model, str | Path | bytes):
        raise BrickError("workers of a cluster load the model themselves: give its path, or its bytes")
    return ClusterStream(client, model, pipeline.options, pipeline.progress)
