"""A frontend of cuDNN whose plans run on the host: the calls that `ops/cuda/cudnn/graph.py` makes, on NumPy."""

from __future__ import annotations

import ctypes
import enum
import itertools
import json
from dataclasses import dataclass, field
from math import erf

import ml_dtypes
import numpy as np

from brickrt.ops.cuda.cudnn.graph import Cudnn
from brickrt.runtime.cuda.driver.cudnn_plans import Plans


class data_type(enum.Enum):
    """The frontend's element types."""

    FLOAT, HALF, BFLOAT16 = range(3)


class heur_mode(enum.Enum):
    """The frontend's ways to list plans."""

    A, FALLBACK = range(2)


class numerical_note(enum.Enum):
    """What the frontend says of an engine's precision."""

    TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION, NONDETERMINISTIC = range(4)


class scalar_type(enum.Enum):
    """When a scalar operand is known."""

    RUNTIME_PARAM, COMPILE_TIME_CONST = range(2)


NUMPY = {data_type.FLOAT: np.float32, data_type.HALF: np.float16, data_type.BFLOAT16: ml_dtypes.bfloat16}


class cudnnGraphNotSupportedError(Exception):
    pass


@dataclass
class PlanOf:
    """An engine on offer: seconds it takes, workspace, notes; `fails` when it is built."""

    seconds: float = 1.0
    workspace: int = 0
    notes: tuple[numerical_note, ...] = ()
    engine: int = 0
    fails: bool = False


@dataclass
class Frontend:
    """What tests pass for the module `cudnn`."""

    plans: list[PlanOf] = field(default_factory=lambda: [PlanOf()])
    most: int = 99  # operations after the product that a graph may have
    version: int = 92000
    handles: dict[str, int | None] = field(default_factory=dict)  # of each the stream
    ran: list[int] = field(default_factory=list)  # index of each plan that ran
    on: list[int | None] = field(default_factory=list)  # and on which stream

    data_type, scalar_type, heur_mode, numerical_note = data_type, scalar_type, heur_mode, numerical_note
    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError

    def backend_version(self):
        return self.version

    def create_handle(self):
        self.handles[f"handle {len(self.handles)}"] = None
        return list(self.handles)[-1]

    def set_stream(self, handle, stream):
        assert handle in self.handles
        self.handles[handle] = stream

    def pygraph(self, **settings):
        assert settings.get("handle") in self.handles
        return FakeGraph(self)


@dataclass
class FakeTensor:
    """A tensor of a graph: an input, or the result of an operation."""

    dims: list[int] | None
    strides: list[int] | None
    dtype: data_type | None
    compute: object = None  # of a result: a function of the memory
    uid: int = 0
    output: bool = False

    def set_output(self, value):
        self.output = value
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def set_data_type(self, dtype):
        self.dtype = dtype
        return self

    def set_dim(self, dims):
        self.dims = dims
        return self

    def set_stride(self, strides):
        self.strides = strides
        return self

    def view(self, address):
        """The memory at an address as an array."""
        assert address % 16 == 0
        dtype = np.dtype(NUMPY[self.dtype])
        last = sum((d - 1) * s for d, s in zip(self.dims, self.strides, strict=True))
        flat = np.frombuffer((ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(flat, self.dims, [s * dtype.itemsize for s in self.strides])


class HostLibrary(Plans):
    """Puts plans on the host's streams."""

    def __init__(self, frontend: Frontend) -> None:
        super().__init__(Cudnn(frontend), "the host", lambda *_: 1.0)
        self.frontend, self.warm = frontend, set[tuple[int, int]]()
        self.ran: list[tuple] = []  # number of the stream, workspace, plan

    def run(self, plan, addresses, workspace, stream):
        self.ran.append((stream.number, workspace, plan))
        before = stream.number, id(plan)
        assert not stream.captured or before in self.warm, "a plan runs for the first time while it is captured"
        self.warm.add(before)
        stream.put(lambda: self._run(plan, addresses, workspace, stream.number))

    def _run(self, plan, addresses, workspace, number):
        self._library.use(number)
        plan.run(addresses, workspace)
        assert self.frontend.on[-1] == number


KEPT: dict[bytes, FakeGraph] = {}


class FakeGraph:
    """A graph of the frontend: collects operations, and computes them with NumPy on the host's memory."""

    def __init__(self, api):
        self.api, self.tensors, self.results, self.barred, self.limit, self.at = api, [], [], set(), None, None
        self.operations = 0

    def tensor(self, dim, stride, data_type, uid, name):
        self.tensors.append(FakeTensor(dim, stride, data_type, None, uid))
        return self.tensors[-1]

    def tensor_scalar(self, value, kind):
        assert isinstance(kind, scalar_type)
        self.operations -= 1
        return self._result(lambda memory: np.float64(value))

    def _result(self, compute):
        self.operations += 1
        self.results.append(FakeTensor(None, None, None, compute))
        return self.results[-1]

    def _of(self, tensor, memory):
        if tensor.compute is not None:
            return tensor.compute(memory)
        return tensor.view(memory[tensor.uid]).astype(np.float64)

    # ---- operations

    def matmul(self, a, b):
        return self._result(lambda m: np.matmul(self._of(a, m), self._of(b, m)))

    def conv_fprop(self, image, weight, pre_padding, post_padding, stride, dilation):
        def compute(m):
            pads = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
            x, w = np.pad(self._of(image, m), pads), self._of(weight, m)
            groups = x.shape[1] // w.shape[1]
            spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
            extents = [(e - span) // s + 1 for e, span, s in zip(x.shape[2:], spans, stride, strict=True)]
            out = np.zeros((x.shape[0], w.shape[0], *extents))
            for taps in itertools.product(*map(range, w.shape[2:])):
                ends = [
                    slice(t * d, t * d + (e - 1) * s + 1, s)
                    for t, d, s, e in zip(taps, dilation, stride, extents, strict=True)
                ]
                part = x[(slice(None), slice(None), *ends)].reshape(x.shape[0], groups, w.shape[1], *extents)
                weights = w[(slice(None), slice(None), *taps)].reshape(groups, -1, w.shape[1])
                out += np.einsum("ngc...,gmc->ngm...", part, weights).reshape(out.shape)
            return out

        return self._result(compute)

    def conv_dgrad(self, loss, filter, pre_padding, post_padding, stride, dilation):
        """What has `loss` as its convolution's gradient; its dimensions are given, and must fit."""

        def compute(m):
            dy, w = self._of(loss, m), self._of(filter, m)
            dims = result.dims
            for e, o, a, b, s, k, d in zip(
                dims[2:], dy.shape[2:], pre_padding, post_padding, stride, w.shape[2:], dilation, strict=True
            ):
                assert (e + a + b - (k - 1) * d - 1) // s + 1 == o
            groups = dims[1] // w.shape[1]
            padded = [e + a + b for e, a, b in zip(dims[2:], pre_padding, post_padding, strict=True)]
            out = np.zeros((dims[0], dims[1], *padded))
            split = dy.reshape(dy.shape[0], groups, -1, *dy.shape[2:])
            for taps in itertools.product(*map(range, w.shape[2:])):
                ends = [
                    slice(t * d, t * d + (e - 1) * s + 1, s)
                    for t, d, s, e in zip(taps, dilation, stride, dy.shape[2:], strict=True)
                ]
                weights = w[(slice(None), slice(None), *taps)].reshape(groups, -1, w.shape[1])
                part = np.einsum("ngc...,gcm->ngm...", split, weights).reshape(dims[0], dims[1], *dy.shape[2:])
                out[(slice(None), slice(None), *ends)] += part
            inner = [slice(a, a + e) for a, e in zip(pre_padding, dims[2:], strict=True)]
            return out[(slice(None), slice(None), *inner)]

        result = self._result(compute)
        return result

    def relu(self, x, lower_clip=0.0, upper_clip=np.inf, negative_slope=0.0):
        def compute(m):
            value = self._of(x, m)
            below = lower_clip + negative_slope * (value - lower_clip)
            return np.minimum(np.where(value < lower_clip, below, value), upper_clip)

        return self._result(compute)

    def swish(self, x):
        return self._result(lambda m: self._of(x, m) / (1 + np.exp(-self._of(x, m))))

    def __getattr__(self, name):
        functions = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
            "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp,
            "tanh": np.tanh, "erf": np.vectorize(erf), "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "floor": np.floor,
        }  # fmt: skip
        if name not in functions:
            raise AttributeError(name)
        return lambda *args: self._result(lambda m: functions[name](*(self._of(a, m) for a in args)))

    # ---- plans

    def validate(self):
        assert sum(t.output for t in self.results) == 1

    def build_operation_graph(self):
        pass

    def create_execution_plans(self, modes):
        assert modes == [heur_mode.A, heur_mode.FALLBACK]

    def deselect_workspace_greater_than(self, limit):
        self.limit = limit

    def deselect_numeric_notes(self, notes):
        self.barred = set(notes)

    def check_support(self):
        if not self.api.plans or self.operations > 1 + self.api.most:
            raise cudnnGraphNotSupportedError("no engine\nfor this graph")

    def get_execution_plan_count(self):
        return len(self.api.plans)

    def get_engine_and_knobs_at_index(self, index):
        return self.api.plans[index].engine, {}

    def build_plan_at_index(self, index):
        plan = self.api.plans[index]
        if plan.fails or plan.workspace > self.limit or self.barred & set(plan.notes):
            raise cudnnGraphNotSupportedError(f"plan {index} is barred")
        self.at = index

    def get_workspace_size(self):
        return self.api.plans[self.at].workspace

    def get_workspace_size_plan_at_index(self, index):
        return self.api.plans[index].workspace

    def serialize(self, as_bytes):
        blob = json.dumps([len(KEPT), self.at]).encode()
        KEPT[blob] = self
        return blob

    def deserialize(self, handle, blob):
        self.__dict__.update(KEPT[bytes(blob)].__dict__ | {"api": self.api})

    # ---- running

    def execute(self, pack, workspace, handle):
        self.execute_plan_at_index(pack, workspace, self.at, handle)

    def execute_plan_at_index(self, pack, workspace, index, handle):
        assert handle in self.api.handles and all(type(k) is int and type(v) is int for k, v in pack.items())
        assert workspace or not self.api.plans[index].workspace
        self.api.ran.append(index)
        self.api.on.append(self.api.handles[handle])
        (out,) = (t for t in self.results if t.output)
        out.view(pack[out.uid])[...] = np.broadcast_to(
            self._of(FakeTensor(None, None, None, out.compute), pack), out.dims
        )
