"""All calls of cuDNN's Python frontend (1.32): builds graphs of forms, chooses plans by measuring, and runs them.

The frontend is imported when a `Cudnn` is made, or passed in: tests have one of their own.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from brickrt.ops.cuda.cudnn.form import Form, Unfit, Value

WORKSPACE = 256 << 20  # bytes that a plan may ask for
MOST_MEASURED_PLANS = 8
PATIENCE = 2.0  # seconds after which no further plan is built: cuDNN compiles some at that time
HANDLES = 16  # at most; then the stream that was not in use for longest gives up its own
NO_STREAM = -1  # whose handle plans are built with
PYTHON_ENGINES = 20_000  # ids from which engines are the frontend's own, compiled at run time: not for us
_DTYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}

Run = Callable[[Sequence[int], int], None]
"""Puts a plan on the handle's stream: addresses of the form's tensors, address of the workspace."""
Measure = Callable[[Run, Sequence[int], int], float]
"""Seconds that a run takes, with memory of these sizes for tensors and workspace."""


class Missing(Exception):
    """cuDNN is not installed or does not start; the message says what to install."""


@dataclass(frozen=True)
class CudnnPlan:
    """A form, ready to run with `workspace` bytes; `Cudnn.load` makes the same plan of `blob` again."""

    form: Form
    run: Run
    workspace: int
    blob: bytes


class Cudnn:
    """cuDNN on the current device. Plans run on the stream last passed to `use`, with that stream's own handle."""

    def __init__(self, frontend: Any = None) -> None:
        try:
            self._api = frontend or importlib.import_module("cudnn")
            self.version = str(self._api.backend_version())
            self._handle = self._api.create_handle()
            self._handles = {NO_STREAM: self._handle}  # by stream, the one used last at the end
        except ImportError:
            raise Missing('cuDNN needs its frontend: pip install "brickrt[cuda13]"') from None
        except Exception as e:
            raise Missing(f"cuDNN does not start ({_line(e)}): pip install nvidia-cudnn-cu13") from None

    def use(self, stream: int) -> None:
        """Makes plans run on this stream from now on; its first use may make a handle, which takes memory."""
        handle = self._handles.pop(stream, None)
        if handle is None:
            full = len(self._handles) == HANDLES
            handle = self._handles.pop(next(iter(self._handles))) if full else self._api.create_handle()
            self._api.set_stream(handle=handle, stream=stream)
        self._handle = self._handles[stream] = handle

    def key(self, form: Form, device: str) -> str:
        """The identity, in caches, of the plan chosen for a form on a device."""
        parts = (repr(form), device, self.version, str(WORKSPACE), str(MOST_MEASURED_PLANS))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def choose(self, form: Form, measure: Measure) -> CudnnPlan:
        """The fastest of the first few plans for a form. Raises Unfit where cuDNN has none."""
        try:
            graph = graph_of(self._api, form, self._handle)
            self._prepare(graph, form)
            best = self._fastest(graph, form, measure)
            graph.build_plan_at_index(best)
            return CudnnPlan(form, self._runner(graph), int(graph.get_workspace_size()), graph.serialize(as_bytes=True))
        except Unfit:
            raise
        except Exception as e:  # whatever it is, kernels compute the product as well
            raise Unfit(f"cuDNN refuses: {_line(e)}") from None

    def load(self, form: Form, blob: bytes) -> CudnnPlan | None:
        """The plan that another process serialized as `blob`; None where this cuDNN does not take it."""
        try:
            graph = self._api.pygraph(handle=self._handle)
            graph.deserialize(self._handle, blob)
            return CudnnPlan(form, self._runner(graph), int(graph.get_workspace_size()), blob)
        except Exception:
            return None

    # ---- plans

    def _prepare(self, graph: Any, form: Form) -> None:
        """Lists all plans that are as precise as the form says and give the same bits every time."""
        notes, modes = self._api.numerical_note, self._api.heur_mode
        barred = [notes.NONDETERMINISTIC, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
        if form.tensors[1].dtype == "float32" and form.precision == "fp32":
            barred.append(notes.TENSOR_CORE)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        graph.deselect_workspace_greater_than(WORKSPACE)
        graph.deselect_numeric_notes(barred)
        graph.check_support()

    def _fastest(self, graph: Any, form: Form, measure: Measure) -> int:
        """The index of the fastest plan; where there is only one, nothing is measured."""
        sizes = [t.nbytes for t in form.tensors]
        built: list[tuple[int, int]] = []
        reason, ends = "no plan", time.monotonic() + PATIENCE
        for index in range(graph.get_execution_plan_count()):
            if len(built) == MOST_MEASURED_PLANS or (built and time.monotonic() > ends):
                break
            try:
                engine, _ = graph.get_engine_and_knobs_at_index(index)
                if engine >= PYTHON_ENGINES:
                    continue
                graph.build_plan_at_index(index)
                workspace = int(graph.get_workspace_size_plan_at_index(index))
            except Exception as e:
                reason = _line(e)
                continue
            if workspace <= WORKSPACE:
                built.append((index, workspace))
        if not built:
            raise Unfit(f"cuDNN refuses: {reason}")
        if len(built) == 1:
            return built[0][0]
        return min(built, key=lambda plan: measure(self._runner(graph, plan[0]), sizes, plan[1]))[0]

    def _runner(self, graph: Any, index: int | None = None) -> Run:
        def run(addresses: Sequence[int], workspace: int) -> None:
            pack = {1 + k: int(address) for k, address in enumerate(addresses)}
            if index is None:
                graph.execute(pack, int(workspace), handle=self._handle)
            else:
                graph.execute_plan_at_index(pack, int(workspace), index, handle=self._handle)

        return run


# ---- graphs


def graph_of(api: Any, form: Form, handle: Any = None) -> Any:
    """The frontend's graph of a form; tensor k has uid 1 + k. Without a handle it can be inspected, but not run."""
    single = _dtype(api, "float32")
    graph = api.pygraph(
        io_data_type=_dtype(api, form.tensors[1].dtype),
        intermediate_data_type=single,
        compute_data_type=single,
        handle=handle,
    )
    tensors = [_tensor(api, graph, form, k) for k in range(1, len(form.tensors))]
    results = [_product(graph, form, *tensors[:2])]
    for step in form.steps:
        args = [_value(api, graph, value, tensors, results) for value in step.args]
        settings = {} if math.isinf(step.most) else {"lower_clip": 0.0, "upper_clip": step.most}
        settings |= {"negative_slope": step.slope} if step.slope else {}
        results.append(getattr(graph, step.fn)(*args, **settings))
    out = form.tensors[0]
    last = results[-1].set_output(True).set_uid(1).set_data_type(_dtype(api, out.dtype))
    last.set_dim(list(out.dims)).set_stride(list(out.strides))
    return graph


def _tensor(api: Any, graph: Any, form: Form, k: int) -> Any:
    t = form.tensors[k]
    dtype = _dtype(api, t.dtype)
    return graph.tensor(dim=list(t.dims), stride=list(t.strides), data_type=dtype, uid=1 + k, name=f"t{k}")


def _product(graph: Any, form: Form, x: Any, w: Any) -> Any:
    if form.kind == "matmul":
        return graph.matmul(x, w)
    settings = {
        "pre_padding": list(form.pads),
        "post_padding": list(form.pads_end),
        "stride": list(form.strides),
        "dilation": list(form.dilations),
    }
    if form.kind == "conv":
        return graph.conv_fprop(image=x, weight=w, **settings)
    product = graph.conv_dgrad(loss=x, filter=w, **settings)
    return product.set_dim(list(form.tensors[0].dims)).set_stride(list(form.tensors[0].strides))


def _value(api: Any, graph: Any, value: Value, tensors: Sequence[Any], results: Sequence[Any]) -> Any:
    kind, which = value
    if kind == "scalar":
        return graph.tensor_scalar(float(which), api.scalar_type.RUNTIME_PARAM)
    return tensors[int(which) - 1] if kind == "tensor" else results[int(which) + 1]


def _dtype(api: Any, name: str) -> Any:
    return getattr(api.data_type, _DTYPES[name])


def _line(error: Exception) -> str:
    """An error's message in one line, without the list of all engines' settings that the frontend puts after it."""
    text = " ".join(str(error).split()).partition(" (the backend declined")[0]
    return text[:300] or type(error).__name__
