"""What the module itself answers: devices, versions, and settings of the whole process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.driver.detect_gpu import gpu_present
from brickrt.runtime.engines import Device
from brickrt.version import VERSION

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
API = "1.20.0"  # the version of ONNX Runtime whose Python API is followed

Provider = str | tuple[str, Mapping[str, Any]]


def get_available_providers() -> list[str]:
    """The devices that are here, the fastest first."""
    return [CUDA, CPU] if gpu_present() else [CPU]


def get_all_providers() -> list[str]:
    """The devices that models can run on, here or elsewhere."""
    return [CUDA, CPU]


def get_device() -> str:
    """ "GPU" where there is one, else "CPU"."""
    return "GPU" if gpu_present() else "CPU"


def get_version_string() -> str:
    """The version of the API that is followed: programs compare it with what they need."""
    return API


def get_build_info() -> str:
    """What runs models."""
    return f"brickrt {VERSION}"


def set_default_logger_severity(severity: int) -> None:
    """Has no effect: nothing is logged."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Has no effect: nothing is logged."""


def set_default_logger_callback(callback: Callable[..., object] | None, severity: int = 2) -> None:
    """Has no effect: nothing is logged."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Has no effect: all sessions share one pool of threads, and each uses as many as its options say."""


def has_collective_ops() -> bool:
    """False: operators that span processes do not run here."""
    return False


def set_seed(seed: int) -> None:
    """Has no effect: random operators draw from the seeds in the model."""


def disable_telemetry_events() -> None:
    """Has no effect: nothing is ever sent."""


def enable_telemetry_events() -> None:
    """Has no effect: nothing is ever sent."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Has no effect: CUDA's libraries are loaded when a session asks for them."""


def print_debug_info() -> None:
    """Prints what runs models, and where."""
    print(f"{get_build_info()}, in place of onnxruntime {API}; devices: {', '.join(get_available_providers())}")


def options_of_providers(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> dict[str, dict[str, str]]:
    """The providers that were asked for and are here, in their order, with their options as text. One that is not here
    is warned of, and left out. Raises BrickError for what is no list of providers."""
    if providers is None:
        return {}
    names = [_named(provider) for provider in _listed("providers", providers)]
    if provider_options is not None and len(_listed("provider_options", provider_options)) != len(names):
        raise BrickError(f"provider_options are {len(provider_options)} for {len(names)} providers: give one for each")
    more = provider_options or [{}] * len(names)
    here, found = get_available_providers(), dict[str, dict[str, str]]()
    for (name, own), other in zip(names, more, strict=True):
        if name not in here:
            warnings.warn(f"provider '{name}' is not here: there is {', '.join(here)}", stacklevel=4)
        else:
            found.setdefault(name, {str(key): str(value) for key, value in {**own, **other}.items()})
    return found


def device_of(providers: Mapping[str, Any], asked: bool) -> Device:
    """The device that runs a model: that of the first provider; the best there is where none was asked for."""
    return "auto" if not asked or next(iter(providers), CPU) == CUDA else "cpu"


def _listed(what: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BrickError(f"{what} is a {type(value).__name__}: give a list, as ['{CPU}']")
    return value


def _named(provider: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, tuple) and len(provider) == 2 and isinstance(provider[1], Mapping):
        return str(provider[0]), provider[1]
    raise BrickError(f"provider {provider!r} is neither a name nor a name with a dictionary of options: give '{CPU}'")
