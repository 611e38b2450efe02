"""The process in which cuDNN plans: `python -m bench.gpu.described.worker LIBRARY DEVICE`; the library is the compiled
fake runtime.

Reads pickled forms from its input, and writes a line of JSON for each: cuDNN's version first, then `Answer`'s fields. A
process of its own, because the fake runtime must be there before cuDNN is loaded, and no other may be.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import sys
from typing import Any

from bench.gpu.described.devices import attributes, properties
from brickrt.ops.cuda.cudnn import graph as cudnn_calls
from brickrt.ops.cuda.cudnn.form import Form, Unfit
from brickrt.ops.cuda.cudnn.graph import Cudnn, graph_of

NO_PATIENCE = -1.0  # the first plan that can be built is enough: nothing is measured here


class DescribedApi:
    """The frontend, with graphs for a described device, which has no handle and no streams."""

    def __init__(self, frontend: Any, device: str) -> None:
        self.frontend, self.graph, self.built = frontend, None, -1
        self.device = frontend.create_device_properties(json.dumps(properties(device)))
        self.data_type, self.scalar_type = frontend.data_type, frontend.scalar_type
        self.heur_mode, self.numerical_note = frontend.heur_mode, frontend.numerical_note

    def backend_version(self) -> int:
        """That of cuDNN."""
        return self.frontend.backend_version()

    def create_handle(self) -> None:
        """A described device has none."""

    def pygraph(self, **settings: Any) -> Any:
        """A graph, of which is remembered what is built last."""
        self.graph = graph = self.frontend.pygraph(**settings | {"handle": None, "device_property": self.device})
        build = graph.build_plan_at_index

        def remember(index: int) -> None:
            build(index)
            self.built = index

        graph.build_plan_at_index = remember
        return graph


def answer(library: Cudnn, api: DescribedApi, form: Form) -> dict[str, Any]:
    """The fields of `Answer` for a form."""
    try:
        plan = library.choose(form, lambda *_: 0.0)
    except Unfit as e:
        return {"refused": str(e)}
    name = api.graph.get_plan_name_at_index(api.built)
    rounds = form.tensors[1].dtype == "float32" and has_tensor_cores(api, form, name)
    return {"plan": name, "workspace": plan.workspace, "tensor_cores": rounds}


def has_tensor_cores(api: DescribedApi, form: Form, name: str) -> bool:
    """Whether cuDNN still offers the plan of this name when only plans on tensor cores are left in the list."""
    graph = graph_of(api, form)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([api.heur_mode.A, api.heur_mode.FALLBACK])
    graph.select_numeric_notes([api.numerical_note.TENSOR_CORE])
    try:
        graph.check_support()
    except api.frontend.cudnnGraphNotSupportedError:
        return False
    for index in range(graph.get_execution_plan_count()):
        if graph.get_plan_name_at_index(index) == name:
            try:
                graph.build_plan_at_index(index)
                return True
            except Exception as e:
                if "Deselecting" not in str(e):
                    raise
    return False


def main() -> None:
    """Answers until the input ends."""
    path, device = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what cuDNN prints is no answer
    fake = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)  # its soname is libcuda.so.1: cuDNN finds it as loaded
    for attribute, value in attributes(device).items():
        fake.described_attribute(attribute, value)
    os.environ["CUDNN_FRONTEND_CUDART_LIB_NAME"] = path
    cudnn_calls.PATIENCE = NO_PATIENCE
    api = DescribedApi(importlib.import_module("cudnn"), device)
    library = Cudnn(api)
    print(json.dumps(library.version), file=answers, flush=True)
    while True:
        try:
            form = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        print(json.dumps(answer(library, api, form)), file=answers, flush=True)


if __name__ == "__main__":
    main()
