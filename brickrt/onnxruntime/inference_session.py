"""`InferenceSession`: a model behind the interface that programs know from ONNX Runtime."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.onnxruntime.devices import HOST, OrtMemoryInfo
from brickrt.onnxruntime.environment import CPU, CUDA, Provider, device_of, options_of_providers
from brickrt.onnxruntime.errors import InvalidArgument, load_error, run_error
from brickrt.onnxruntime.io_binding import IOBinding
from brickrt.onnxruntime.model_info import ModelMetadata, NodeArg, metadata, node_args
from brickrt.onnxruntime.options import SessionOptions, threads_of
from brickrt.onnxruntime.ort_value import OrtValue
from brickrt.onnxruntime.profile import noted, profile_of
from brickrt.onnxruntime.run_options import RunOptions, check_terminated, ended_by
from brickrt.onnxruntime.written_model import check_apart, write_model
from brickrt.runtime.compiled.compiled_source import CompiledSource, model_source
from brickrt.runtime.counts import Cancelled
from brickrt.runtime.session.runtime import Runtime

Names = Sequence[str] | None
Finished = Callable[[list[Any], Any, str], object]


class InferenceSession:
    """Runs a model: `path_or_bytes` is a path, a model's bytes or a message.

    Of `sess_options`, brickrt's or ONNX Runtime's own, threads, profiling and initializers are honoured.
    `providers` are names in the order in which they are wanted, each alone or with a dictionary of options, which have
    no effect; those that are not here are warned of. Other keywords are accepted. `runtime` is the
    `brickrt.Runtime` behind it, for all that this interface has no name for. Programs for new shapes are compiled in
    the call that brings them, and kept.

    Raises BrickError, one line, for models, options and inputs that make no sense.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike | onnx.ModelProto,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        self._terminations = 0  # of runs, by their options
        self._ending = threading.Lock()
        if providers is None:
            providers, provider_options = getattr(self._options, "providers", None) or None, None
        self._providers = options_of_providers(providers, provider_options)
        self._device = device_of(self._providers, providers is not None)
        self._profile = profile_of(self._options)
        model = Path(path_or_bytes) if isinstance(path_or_bytes, os.PathLike) else path_or_bytes
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, str | os.PathLike) else None
        try:
            with noted(self._profile, "model_loading"):
                given = getattr(self._options, "initializers", {})
                self.runtime = self._made(with_initializers(model_source(model), given))
                self._write_optimized(model, given)
        except BrickError as e:
            raise load_error(e, path_or_bytes) from e

    # ---- what it is

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run needs, with the names of free dimensions."""
        source = self.runtime.source
        return node_args(source.inputs, source.light.graph.input, self._free())

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, as the model declares them."""
        source = self.runtime.source
        return node_args(source.outputs, source.light.graph.output, {})

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default, which a run may leave out."""
        source = self.runtime.source
        return node_args(source.optional, source.light.graph.input, self._free())

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return metadata(self.runtime.source)

    def get_session_options(self) -> Any:
        """The options it was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """What runs the model, and the CPU, which runs what the first cannot."""
        return [CUDA, CPU] if self.runtime.device == "cuda" else [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options that were given, by provider."""
        return {name: self._providers.get(name, {}) for name in self.get_providers()}

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Runs the model elsewhere from now on; its programs are compiled again."""
        self._providers = options_of_providers(providers, provider_options)
        self._device = device_of(self._providers, providers is not None)
        self.runtime = self._made(self.runtime.source)

    def disable_fallback(self) -> None:
        """Has no effect: a session stays on its device."""

    def enable_fallback(self) -> None:
        """Has no effect: a session stays on its device."""

    def end_profiling(self) -> str:
        """Writes what was profiled, and gives the file's name; "" where nothing is."""
        return self._profile.write() if self._profile is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by the clock of `time.monotonic_ns`; 0 where it did not."""
        return self._profile.began_ns if self._profile is not None else 0

    # ---- running

    def run(
        self, output_names: Names, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of these names, or all, in their order: NumPy arrays, lists for sequences.

        Inputs are arrays of NumPy or another library, `OrtValue`s, or lists of numbers.
        """
        names = self._names(output_names)
        outputs = self._execute(input_feed, None, run_options)
        return [_told(outputs[name]) for name in names]

    def run_async(
        self,
        output_names: Names,
        input_feed: Mapping[str, Any],
        callback: Finished,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs in another thread, which calls `callback(outputs, user_data, error)`; `error` is "" if there is none."""

        def work() -> None:
            results, error = list[Any](), ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except BrickError as e:
                error = str(e)
            callback(results, user_data, error)

        threading.Thread(target=work, name="brickrt-run-async").start()

    def run_with_ort_values(
        self, output_names: Names, input_dict_ort_values: Mapping[str, OrtValue], run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """As `run`, from values to values."""
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that stay bound over several runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Reads the bound inputs and writes the bound outputs."""
        names = self._names(list(iobinding.outputs))
        into = {name: array for name, array in iobinding.outputs.items() if array is not None}
        outputs = self._execute(iobinding.inputs, into, run_options)
        iobinding.ran([_told(outputs[name]) for name in names])

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each input lies: in the host's memory."""
        return [HOST] * len(self.runtime.source.inputs)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each output lies: in the host's memory."""
        return [HOST] * len(self.runtime.source.outputs)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Has no effect: devices have no options."""

    def get_tuning_results(self) -> list[Any]:
        """Nothing: plans are tuned by `brickrt tune`."""
        return []

    def _made(self, source: SourceGraph) -> Runtime:
        """The model on the device, watched if it is profiled; of a compiled file's nodes nothing is known."""
        watch = None if isinstance(source, CompiledSource) else self._profile
        if watch is not None:
            watch.op_types = {node.name: node.op_type for node in source.nodes}
        return Runtime(source, device=self._device, threads=threads_of(self._options), watch=watch)

    def _write_optimized(self, model: Any, given: Mapping[str, Any]) -> None:
        """Writes the model where the options ask for that."""
        target = str(getattr(self._options, "optimized_model_filepath", ""))
        if target:
            check_apart(target, model)
            write_model(target, model, self.runtime.source, given)

    def _execute(
        self, feed: Mapping[str, Any], into: Mapping[str, Any] | None, options: RunOptions | None
    ) -> dict[str, Any]:
        try:
            with noted(self._profile, "model_run"), ended_by(options, self._end_runs):
                return self._unless_ended(self._fed(feed), into, options)
        except BrickError as e:
            raise run_error(e) from e

    def _unless_ended(
        self, feed: Mapping[str, Any], into: Mapping[str, Any] | None, options: RunOptions | None
    ) -> dict[str, Any]:
        """Runs, once more where that was ended for the sake of another run's options: programs cannot end one alone."""
        while True:
            with self._ending:
                before = self._terminations
            try:
                return self.runtime.execute(feed, outputs=into)
            except Cancelled:
                check_terminated(options)
                with self._ending:
                    if self._terminations == before:
                        raise

    def _end_runs(self) -> None:
        with self._ending:  # a run that is ended by this counts as one that began before
            self._terminations += 1
            self.runtime.cancel()

    def _free(self) -> Mapping[str, int]:
        return getattr(self._options, "free_dimensions", {})

    def _names(self, asked: Names) -> list[str]:
        known = self.runtime.source.outputs
        for name in asked or ():
            if name not in known:
                raise InvalidArgument(
                    f"output '{name}' is not one of the model's: it gives {', '.join(map(repr, known))}"
                )
        return list(asked or known)

    def _fed(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs as arrays; lists become arrays of the type that the model takes."""
        if not isinstance(feed, Mapping):
            return feed  # which `execute` refuses
        infos = {**self.runtime.source.inputs, **self.runtime.source.optional}
        return {name: _array(value, infos[name].dtype if name in infos else None) for name, value in feed.items()}


def with_initializers(source: SourceGraph, given: Mapping[str, Any]) -> SourceGraph:
    """The model with these arrays in place of its own. Raises BrickError for another name, type or shape."""
    for name, array in given.items():
        there = source.initializers.get(name)
        if there is None or (there.shape, there.dtype) != (array.shape, array.dtype):
            found = "is not one of the model's" if there is None else f"is {there.dtype}{list(there.shape)} there"
            raise BrickError(f"initializer '{name}' {array.dtype}{list(array.shape)} {found}: give one like it")
    return replace(source, initializers={**source.initializers, **given}) if given else source


def _told(value: Any) -> Any:
    """An output, its texts as Python's strings."""
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind in "SU" else value


def _array(value: Any, dtype: np.dtype | None) -> Any:
    if isinstance(value, OrtValue):
        return value.numpy()
    if isinstance(value, list | tuple | int | float) and dtype is not None and dtype != np.dtype(object):
        try:
            return np.asarray(value, dtype)
        except (TypeError, ValueError, OverflowError):
            return value  # which `execute` refuses, by name
    return value
