"""ONNX's opset converter in a process of its own: broken models bring this native code down, and few models need it."""

from __future__ import annotations

import subprocess
import sys

import onnx
from onnx import onnx_cpp2py_export

from brickrt.graph.errors import ModelError
from brickrt.graph.time_budget import allowed_seconds

UPGRADE = "onnx.version_converter.convert_version(model, {})"
INLINE = "onnx.inliner.inline_local_functions(model, True)"

# ONNX's native module alone, from its file: importing the package takes ten times as long as converting most models.
_SCRIPT = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("onnx_cpp2py_export", sys.argv[1])
onnx = module_from_spec(spec)
spec.loader.exec_module(onnx)
model = sys.stdin.buffer.read()
try:
    result = {work}
except Exception as e:
    sys.exit(" ".join(str(e).rpartition(" failed: ")[2].split()) or type(e).__name__)
sys.stdout.buffer.write(result)
"""


def converted(model: onnx.ModelProto, work: str) -> onnx.ModelProto:
    """What an expression of a model's bytes, `UPGRADE` to an opset or `INLINE`, makes of a model.

    Raises ModelError with ONNX's reason in one line, or where the process crashed or took too long.
    """
    command = [sys.executable, "-P", "-c", _SCRIPT.format(work=work), onnx_cpp2py_export.__file__]
    seconds = allowed_seconds()
    try:
        done = subprocess.run(
            command,
            input=model.SerializeToString(),
            capture_output=True,
            timeout=None if seconds == float("inf") else seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"ONNX's converter took over {seconds:g} s") from None
    except OSError as e:
        raise ModelError(f"no process for ONNX's converter can be started: {e}") from e
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ModelError(said[-1] if said and done.returncode > 0 else f"ONNX's converter crashed ({done.returncode})")
    return onnx.ModelProto.FromString(done.stdout)
