"""Devices and places in memory, by which programs say where values are to lie. Here values lie in the host's memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from brickrt.graph.errors import BrickError


class OrtAllocatorType(IntEnum):
    """How memory is taken there. Here the planner takes all that a run needs at once."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Who reads and writes memory of a device."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Whether the host reaches memory of a device."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceVendorId(IntEnum):
    """Who makes a device, by the numbers of PCI."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


KINDS = {
    "cpu": (OrtMemoryInfoDeviceType.CPU, OrtDeviceVendorId.NONE),
    "gpu": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.NONE),
    "cuda": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.NVIDIA),
    "dml": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.MICROSOFT),
    "webgpu": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.NONE),
    "fpga": (OrtMemoryInfoDeviceType.FPGA, OrtDeviceVendorId.NONE),
    "npu": (OrtMemoryInfoDeviceType.NPU, OrtDeviceVendorId.NONE),
    "cann": (OrtMemoryInfoDeviceType.NPU, OrtDeviceVendorId.HUAWEI),
}


@dataclass(frozen=True)
class OrtDevice:
    """A device, by name and number; `make` makes one."""

    name: str
    number: int
    vendor: int

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of a name such as "cpu" or "cuda". Raises BrickError for an unknown name."""
        name = str(ort_device_name).lower()
        if name not in KINDS:
            raise BrickError(f"device '{ort_device_name}' is unknown: there are {', '.join(KINDS)}")
        return OrtDevice(name, int(device_id), int(KINDS[name][1] if vendor_id < 0 else vendor_id))

    def device_id(self) -> int:
        """The number of the device among those of its kind."""
        return self.number

    def device_type(self) -> int:
        """The number of its kind, as `OrtMemoryInfoDeviceType` has it."""
        return int(KINDS[self.name][0])

    def device_vendor_id(self) -> int:
        """Who makes it, as `OrtDeviceVendorId` has it."""
        return self.vendor

    def device_mem_type(self) -> int:
        """0: memory that is the device's own."""
        return int(OrtDeviceMemoryType.DEFAULT)

    def _get_c_device(self) -> OrtDevice:
        return self


@dataclass(frozen=True)
class OrtMemoryInfo:
    """A place in memory: the name of its allocator, "Cpu" for the host's, and what programs ask of it."""

    name: str
    allocator_type: OrtAllocatorType
    device_id: int
    mem_type: OrtMemType

    @property
    def device_mem_type(self) -> OrtDeviceMemoryType:
        """DEFAULT: the device's own."""
        return OrtDeviceMemoryType.DEFAULT

    @property
    def device_vendor_id(self) -> int:
        """Who makes the device; 0 for nobody."""
        return int(KINDS.get(self.name.lower(), KINDS["cpu"])[1])


class OrtArenaCfg:
    """Limits of an arena: four numbers, or a dictionary of them. Without effect."""

    def __init__(self, *limits: Any) -> None:
        self.limits = limits


HOST = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
"""Where inputs and outputs of sessions lie."""


def check_host(place: str | OrtDevice | OrtMemoryInfo) -> None:
    """Raises BrickError for a device whose memory values do not lie in."""
    name = place if isinstance(place, str) else place.name
    if name.lower() not in ("cpu", "cuda_pinned", "cudapinned"):
        raise BrickError(f"values on '{name}' are CuPy's or torch's arrays: give these to run, or use 'cpu'")


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Has no effect: memory is taken as plans say."""


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, provider_options: Any, arena_cfg: OrtArenaCfg | None
) -> None:
    """Has no effect: memory is taken as plans say."""
