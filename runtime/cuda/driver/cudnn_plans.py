"""cuDNN's plans of forms, kept on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from brickrt.ops.cuda.cudnn.form import Form, Unfit
from brickrt.ops.cuda.cudnn.graph import Cudnn, CudnnPlan, Measure, Run
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cuda.driver.device_errors import DeviceError
from brickrt.runtime.cuda.driver.protocol import Stream


class Plans:
    """Plans of forms: from the disk, or chosen by measuring and kept there. What drivers give as their library."""

    def __init__(self, library: Cudnn, device: str, measure: Measure) -> None:
        self._library, self._device, self._measure = library, device, measure
        self._lock = threading.RLock()  # the stream in use is one for all threads
        self._store, self._known = DiskCache.open("cudnn"), dict[Form, CudnnPlan]()

    def plan(self, form: Form) -> CudnnPlan:
        """Raises Unfit where cuDNN has none."""
        with self._lock:
            if form not in self._known:
                self._known[form] = self._find(form)
            return self._known[form]

    @property
    def version(self) -> str:
        """That of cuDNN."""
        return self._library.version

    def _find(self, form: Form) -> CudnnPlan:
        key = self._library.key(form, self._device)
        blob = self._store.get(key)
        plan = self._library.load(form, blob) if blob is not None else None
        if plan is None:
            plan = self._choose(form)
            self._store.put(key, plan.blob)
        return plan

    def _choose(self, form: Form) -> CudnnPlan:
        """The library refuses a form for whatever goes wrong as it measures, but after a fault all is lost."""
        faults: list[DeviceError] = []

        def measure(run: Run, sizes: Sequence[int], workspace: int) -> float:
            try:
                return self._measure(run, sizes, workspace)
            except DeviceError as e:
                faults.extend([e] if e.fatal else [])
                raise

        try:
            return self._library.choose(form, measure)
        except Unfit:
            if faults:
                doing = f"measuring a plan of cuDNN's for {form.kind} {form.tensors[0].dims}"
                raise DeviceError(doing, faults[0].reason, True) from None
            raise

    def run(self, plan: CudnnPlan, addresses: Sequence[int], workspace: int, stream: Stream) -> None:
        """Puts a plan on a stream. Raises DeviceError."""
        with self._lock:
            try:
                self._library.use(stream.address)
                plan.run(addresses, workspace)
            except Exception as e:  # the frontend's errors are of many kinds
                raise DeviceError("a call of cuDNN", " ".join(str(e).split())[:300] or type(e).__name__) from e
