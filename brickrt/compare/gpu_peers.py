"""brickrt and its peers on a GPU as engines: inputs lie in its memory, and a run returns when the GPU has finished.

Peers are given the same network, translated to their own functions (translate.py); all compute in the same precision.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

from brickrt.compare.peers import OURS, ComparedEngine, Feeds
from brickrt.compare.translate import TranslatedNetwork, network
from brickrt.runtime.session.runtime import Runtime

Made = Callable[[], list[np.ndarray]]


def ours(runtime: Runtime, feeds: Feeds, name: str = OURS) -> ComparedEngine:
    """brickrt, by a runtime of device "cuda" that has the model loaded."""
    import cupy

    held = {key: cupy.asarray(array) for key, array in feeds.items()}

    def run() -> list[Any]:
        outputs = list(runtime.execute(held).values())
        cupy.cuda.runtime.deviceSynchronize()
        return outputs

    return ComparedEngine(name, run)


def _torch(
    net: TranslatedNetwork, feeds: Feeds, precision: str, device: str, channels_last: bool = True
) -> tuple[Any, list[Any]]:
    """The module and its inputs, channels last or as ONNX has them."""
    import torch

    from brickrt.compare.torch_backend import TorchNetwork

    torch.backends.cudnn.benchmark = True
    matrices: Any = torch.backends.cuda.matmul
    torch.backends.cudnn.allow_tf32 = matrices.allow_tf32 = precision == "tf32"
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    module = TorchNetwork(net).eval().to(device, dtype)
    tensors = [torch.from_numpy(np.array(feeds[name])).to(device, dtype) for name in net.inputs]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d} if channels_last else {}
    for key, buffer in list(module.named_buffers()):
        if buffer.ndim in formats:
            setattr(module, key, buffer.to(memory_format=formats[buffer.ndim]))
    return module, [t.to(memory_format=formats[t.ndim]) if t.ndim in formats else t for t in tensors]


def _torch_engine(name: str, module: Any, tensors: list[Any], device: str) -> ComparedEngine:
    import torch

    def run() -> list[Any]:
        with torch.inference_mode():
            outputs = module(*tensors)
        if device == "cuda":
            torch.cuda.synchronize()
        return list(outputs)

    return ComparedEngine(name, run)


def torch_eager(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> ComparedEngine:
    """PyTorch, one operator after another: cuDNN for convolutions."""
    return _torch_engine("torch", *_torch(net, feeds, precision, device), device)


def torch_graph(
    net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda", channels_last: bool = True
) -> ComparedEngine:
    """PyTorch captured in a CUDA graph, so that the host's time for each operator is no part of a run."""
    import torch

    if device != "cuda":
        raise LookupError("a CUDA graph needs a GPU")
    module, tensors = _torch(net, feeds, precision, device, channels_last)
    with torch.inference_mode():
        with torch.cuda.stream(torch.cuda.Stream()):  # cuDNN chooses its algorithms here: it cannot in a capture
            for _ in range(3):
                module(*tensors)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = list(module(*tensors))

    def run() -> list[Any]:
        graph.replay()
        torch.cuda.synchronize()
        return outputs

    return ComparedEngine("torch-graph" if channels_last else "torch-graph-nchw", run)


def torch_script(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> ComparedEngine:
    """TorchScript: the module traced and frozen."""
    import torch

    module, tensors = _torch(net, feeds, precision, device)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that shapes become constants of the trace, which is what we want
        traced = torch.jit.freeze(torch.jit.trace(module, tensors, check_trace=False))
    return _torch_engine("torchscript", traced, tensors, device)


def exported(module: Any, tensors: list[Any]) -> Any:
    """The module as straight-line code on tensors: Dynamo would trace the NumPy arrays of the module itself."""
    import torch

    return torch.export.export(module, tuple(tensors), strict=False).module()


def torch_compiled(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> ComparedEngine:
    """torch.compile, tuned as far as it goes on a GPU."""
    import torch

    module, tensors = _torch(net, feeds, precision, device)
    mode = "max-autotune" if device == "cuda" else None
    compiled = torch.compile(exported(module, tensors), mode=mode, dynamic=False)
    return _torch_engine("torch.compile", compiled, tensors, device)


def xla(net: TranslatedNetwork, feeds: Feeds, precision: str, device: str = "cuda") -> ComparedEngine:
    """XLA by JAX, on the device that JAX chooses; LookupError where that is not the GPU, as it should be.

    JAX does not reserve the GPU's memory: the other engines need some.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    from brickrt.compare.jax_backend import jax_network

    if device == "cuda" and jax.default_backend() != "gpu":
        raise LookupError(f"JAX finds no GPU and would use its {jax.default_backend()} backend")
    dtype = {"fp16": jnp.float16, "bf16": jnp.bfloat16}.get(precision, jnp.float32)
    function = jax_network(net, dtype, {"fp32": "highest", "tf32": "tensorfloat32"}.get(precision))
    arrays = [jnp.asarray(feeds[name], dtype) for name in net.inputs]
    return ComparedEngine("xla", lambda: list(jax.block_until_ready(function(*arrays))))


PEERS: dict[str, Callable[..., ComparedEngine]] = {
    "torch": torch_eager,
    "torch-graph": torch_graph,
    "torch-graph-nchw": partial(torch_graph, channels_last=False),
    "torchscript": torch_script,
    "torch.compile": torch_compiled,
    "xla": xla,
}
_MODULE = {"xla": "jax"}


def make_peers(
    model: onnx.ModelProto, feeds: Feeds, precision: str, names: list[str], device: str = "cuda"
) -> tuple[list[ComparedEngine], dict[str, str]]:
    """The peers of these names that run the model, each having run once; and by name why the others do not."""
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
    """An output of any engine as an array of NumPy, in float32 where it is of half precision."""
    if hasattr(output, "detach"):
        output = output.detach().float().cpu().numpy()
    array = output.get() if hasattr(output, "get") else np.asarray(output)
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind in "fV" else array
