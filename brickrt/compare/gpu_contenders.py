"""brickrt and other engines on one GPU: inputs lie in its memory, and a turn ends when the GPU has ended.

Peers are given the same network in straight-line code (`translate`); all compute in the same precision.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

from brickrt.compare.contenders import OURS, Contender, Feeds
from brickrt.compare.translate import TranslatedNetwork, network
from brickrt.runtime.session.runtime import Runtime

Made = Callable[[], list[np.ndarray]]


def ours(runtime: Runtime, feeds: Feeds, name: str = OURS) -> Contender:
    """`runtime` is one of device cuda."""
    import cupy

    held = {key: cupy.asarray(array) for key, array in feeds.items()}

    def run() -> list[Any]:
        outputs = list(runtime.execute(held).values())
        cupy.cuda.runtime.deviceSynchronize()
        return outputs

    return Contender(name, run)


def _torch(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str) -> tuple[Any, list[Any]]:
    """The module and its inputs, channels last."""
    import torch

    from brickrt.compare.torch_backend import TorchNetwork

    torch.backends.cudnn.benchmark = True
    matrices: Any = torch.backends.cuda.matmul
    torch.backends.cudnn.allow_tf32 = matrices.allow_tf32 = precision == "tf32"
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    module = TorchNetwork(net).eval().to(device, dtype)
    tensors = [torch.from_numpy(np.array(feeds[name])).to(device, dtype) for name in net.inputs]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for key, buffer in list(module.named_buffers()):
        if buffer.ndim in formats:
            setattr(module, key, buffer.to(memory_format=formats[buffer.ndim]))
    return module, [t.to(memory_format=formats[t.ndim]) if t.ndim in formats else t for t in tensors]


def _torch_contender(name: str, module: Any, tensors: list[Any], device: str) -> Contender:
    import torch

    def run() -> list[Any]:
        with torch.inference_mode():
            outputs = module(*tensors)
        if device == "cuda":
            torch.cuda.synchronize()
        return list(outputs)

    return Contender(name, run)


def torch_eager(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> Contender:
    """cuDNN operator by operator."""
    return _torch_contender("torch", *_torch(net, feeds, precision, device), device)


def torch_script(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> Contender:
    import torch

    module, tensors = _torch(net, feeds, precision, device)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that shapes are constants of the trace, as they shall be
        traced = torch.jit.freeze(torch.jit.trace(module, tensors, check_trace=False))
    return _torch_contender("torchscript", traced, tensors, device)


def exported(module: Any, tensors: list[Any]) -> Any:
    """The same module in straight-line code of tensors: Dynamo would take NumPy's arrays for tensors, too."""
    import torch

    return torch.export.export(module, tuple(tensors), strict=False).module()


def torch_compiled(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> Contender:
    import torch

    module, tensors = _torch(net, feeds, precision, device)
    mode = "max-autotune" if device == "cuda" else None
    compiled = torch.compile(exported(module, tensors), mode=mode, dynamic=False)
    return _torch_contender("torch.compile", compiled, tensors, device)


def xla(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> Contender:
    """JAX, on the device that it chose by itself; it shares the GPU's memory with the others."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    from brickrt.compare.jax_backend import jax_network

    if device == "cuda" and jax.default_backend() != "gpu":  # it would compute on the host, with a warning at most
        raise LookupError(f"JAX finds no GPU and would use its {jax.default_backend()} backend")
    dtype = {"fp16": jnp.float16, "bf16": jnp.bfloat16}.get(precision, jnp.float32)
    function = jax_network(net, dtype, {"fp32": "highest", "tf32": "tensorfloat32"}.get(precision))
    arrays = [jnp.asarray(feeds[name], dtype) for name in net.inputs]
    return Contender("xla", lambda: list(jax.block_until_ready(function(*arrays))))


PEERS = {"torch": torch_eager, "torchscript": torch_script, "torch.compile": torch_compiled, "xla": xla}
_MODULE = {"xla": "jax"}


def make_peers(
    model: onnx.ModelProto, feeds: Feeds, precision: str, names: list[str], device: str = "cuda"
) -> tuple[list[Contender], dict[str, str]]:
    """The peers that run the model, each having run once, and why the others do not."""
    made, left_out = [], {}
    net = network(model)
    for name in names:
        module = _MODULE.get(name, "torch")
        if find_spec(module) is None:
            left_out[name] = f"not installed: pip install {module}"
            continue
        try:
            peer = PEERS[name](net, feeds, precision, device)
            peer.run()
            made.append(peer)
        except Exception as e:  # each peer has its own ways to fail
            left_out[name] = f"does not run this model: {' '.join(str(e).split())[:200] or type(e).__name__}"
    return made, left_out


def as_numpy(output: Any) -> np.ndarray:
    """An output of any contender, in float32 where it is a half."""
    if hasattr(output, "detach"):
        output = output.detach().float().cpu().numpy()
    array = output.get() if hasattr(output, "get") else np.asarray(output)
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind in "fV" else array
