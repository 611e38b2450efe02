"""cuDNN's plans of forms, kept on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from brickrt.ops.cuda.cudnn.form import Form
from brickrt.ops.cuda.cudnn.graph import Cudnn, CudnnPlan, Measure
from brickrt.runtime.cache.disk_cache import DiskCache
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
            plan = self._library.choose(form, self._measure)
            self._store.put(key, plan.blob)
        return plan

    def run(self, plan: CudnnPlan, addresses: Sequence[int], workspace: int, stream: Stream) -> None:
        """Puts a plan on a stream."""
        with self._lock:
            self._library.use(stream.address)
            plan.run(addresses, workspace)
