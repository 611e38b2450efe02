"""`InferenceSession`: a model behind the interface that programs know from ONNX Runtime."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from brickrt.graph.errors import BrickError, InputError
from brickrt.onnxruntime.environment import CPU, CUDA, Provider, device_of, options_of_providers
from brickrt.onnxruntime.io_binding import IOBinding
from brickrt.onnxruntime.model_info import ModelMetadata, NodeArg, metadata, node_args
from brickrt.onnxruntime.options import RunOptions, SessionOptions, threads_of
from brickrt.onnxruntime.ort_value import OrtValue
from brickrt.runtime.session.runtime import Runtime

Names = Sequence[str] | None
Finished = Callable[[list[Any], Any, str], object]


class InferenceSession:
    """Runs a model: `path_or_bytes` is a path, a model's bytes or a message.

    Of `sess_options`, brickrt's or ONNX Runtime's own, the number of threads is honoured. `providers` are names in the
    order in which they are wanted, each alone or with a dictionary of options, which have no effect; those that are not
    here are warned of. Other keywords are accepted. `runtime` is the `brickrt.Runtime` behind it, for all that this
    interface has no name for. Programs for new shapes are compiled in the call that brings them, and kept.

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
        self._providers = options_of_providers(providers, provider_options)
        threads, device = threads_of(self._options), device_of(self._providers, providers is not None)
        model = Path(path_or_bytes) if isinstance(path_or_bytes, os.PathLike) else path_or_bytes
        self.runtime = Runtime(model, device=device, threads=threads)

    # ---- what it is

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run needs, with the names of free dimensions."""
        source = self.runtime.source
        return node_args(source.inputs, source.light.graph.input, self._free())

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, as the model declares them."""
        source = self.runtime.source
        return node_args(source.outputs, source.light.graph.output, self._free())

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
        device = device_of(self._providers, providers is not None)
        self.runtime = Runtime(self.runtime.source, device=device, threads=threads_of(self._options))

    def disable_fallback(self) -> None:
        """Has no effect: a session stays on its device."""

    def enable_fallback(self) -> None:
        """Has no effect: a session stays on its device."""

    def end_profiling(self) -> str:
        """Ends nothing, and gives no file: `brickrt run --trace` and `--report` write them."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """0: nothing is profiled here."""
        return 0

    # ---- running

    def run(
        self, output_names: Names, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of these names, or all, in their order: NumPy arrays, lists for sequences.

        Inputs are arrays of NumPy or another library, `OrtValue`s, or lists of numbers.
        """
        names = self._names(output_names)
        outputs = self.runtime.execute(self._fed(input_feed))
        return [outputs[name] for name in names]

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
        outputs = self.runtime.execute(self._fed(iobinding.inputs), outputs=into)
        iobinding.ran([outputs[name] for name in names])

    def _free(self) -> Mapping[str, int]:
        return getattr(self._options, "free_dimensions", {})

    def _names(self, asked: Names) -> list[str]:
        known = self.runtime.source.outputs
        for name in asked or ():
            if name not in known:
                raise InputError(f"output '{name}' is not one of the model's: it gives {', '.join(map(repr, known))}")
        return list(asked or known)

    def _fed(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs as arrays; lists become arrays of the type that the model takes."""
        if not isinstance(feed, Mapping):
            return feed  # which `execute` refuses
        infos = {**self.runtime.source.inputs, **self.runtime.source.optional}
        return {name: _array(value, infos[name].dtype if name in infos else None) for name, value in feed.items()}


def _array(value: Any, dtype: np.dtype | None) -> Any:
    if isinstance(value, OrtValue):
        return value.numpy()
    if isinstance(value, list | tuple | int | float) and dtype is not None and dtype != np.dtype(object):
        try:
            return np.asarray(value, dtype)
        except (TypeError, ValueError, OverflowError):
            return value  # which `execute` refuses, by name
    return value
