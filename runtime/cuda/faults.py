"""What to say when the device fails: which nodes, kernels and bricks it was at, and later that all is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar
from weakref import WeakSet

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.device_errors import DeviceError, after
from brickrt.runtime.cuda.driver.protocol import Driver
from brickrt.runtime.cuda.launch_marks import LaunchMarks
from brickrt.runtime.cuda.launch_names import LaunchNames
from brickrt.runtime.environment import CHECKED

MOST_PLACES = 3  # where it may have been, that are named


class Faults:
    """Stands around all that one program does with its device: inside of `with`, DeviceError becomes an error that says
    where it was. After a fault of any program on the device, `with` raises at once."""

    _all: ClassVar[WeakSet[Faults]] = WeakSet()  # several programs may be under way when one of them notices a fault

    def __init__(self, driver: Driver, checked: bool) -> None:
        self._driver, self._checked = driver, checked
        self._marks: LaunchMarks | None = None

    def watch(self, marks: LaunchMarks, names: LaunchNames, at_work: Callable[[], Sequence[int]]) -> None:
        """From now on launches can be named; `at_work` gives the tasks that blocks are at, in checked runs."""
        self._marks, self._names, self._at_work = marks, names, at_work
        Faults._all.add(self)

    def __enter__(self) -> None:
        if self._driver.fault is not None:
            raise after(self._driver.fault)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeviceError):
            raise self.told(error) from None

    def told(self, error: DeviceError) -> BrickError:
        """The error for the user."""
        if error.fatal:
            self._driver.fault = self._driver.fault or self._fault(error)
            return BrickError(self._driver.fault)
        if self._marks is not None:
            self._marks.spoil()
        return error if error.launch is None else BrickError(f"{self._names.launch(error.launch)}: {error}")

    def _fault(self, error: DeviceError) -> str:
        if error.launch is not None:
            places, known = self._exactly(error.launch), True
        else:
            others = [one for one in tuple(Faults._all) if one._driver is self._driver and one.under_way]
            places, known = [place for one in others for place in one.places()], bool(others)
        more = f"; or {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        early = ", before a kernel began" if known else ""
        where = "in " + "; or ".join(places[:MOST_PLACES]) + more if places else f"when {error.doing}{early}"
        hint = "" if self._checked or not places else f"; set {CHECKED}=1 to learn the brick"
        return f"the GPU took a fault {where}: {error.reason}{hint}"

    @property
    def under_way(self) -> bool:
        """Whether launches of the program may be running."""
        return self._marks is not None and self._marks.under_way

    def places(self) -> list[str]:
        """What launches that may be running compute."""
        assert self._marks is not None
        found = self._marks.running()
        calls = [k for k in found if self._names.is_call(k)]
        return [self._names.launch(k) for k in found if k not in calls] + ([self._names.calls(calls)] if calls else [])

    def _exactly(self, launch: int) -> list[str]:
        """What blocks are at; of launches that do not tell, all they compute."""
        tasks = self._at_work() if self._checked else ()
        return [self._names.task_and_kernel(task) for task in tasks] or [self._names.launch(launch)]
