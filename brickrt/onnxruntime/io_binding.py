"""Inputs and outputs that stay bound over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.onnxruntime.devices import check_host
from brickrt.onnxruntime.ort_value import OrtValue, Place, array_at


class IOBinding:
    """Arrays by name that `InferenceSession.run_with_iobinding` reads and writes. Where an output has an array of its
    own, results are written there."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, np.ndarray | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array as an input."""
        self.inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: Place, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Binds memory at an address, which must stay. Raises BrickError for memory of a GPU."""
        check_host(device_type)
        self.inputs[name] = array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a value as an input."""
        self.inputs[name] = ortvalue.numpy()

    def bind_output(
        self,
        name: str,
        device_type: Place = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Asks for an output: in memory at an address, which must stay, or, without one, in an array of its own."""
        check_host(device_type)
        if buffer_ptr is None:
            self.outputs[name] = None
        elif shape is None or element_type is None:
            raise BrickError(f"output '{name}' has an address alone: give element_type and shape too")
        else:
            self.outputs[name] = array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Has an output written into a value."""
        self.outputs[name] = ortvalue.numpy()

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self.outputs.clear()
        self._results = []

    def synchronize_inputs(self) -> None:
        """Returns at once: inputs are in the host's memory."""

    def synchronize_outputs(self) -> None:
        """Returns at once: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order in which outputs were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same as `get_outputs`: a list serves as a vector."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays."""
        return [value.numpy() for value in self._results]

    def ran(self, results: Sequence[Any]) -> None:
        """Takes the results of a run."""
        self._results = [OrtValue(value) for value in results]
