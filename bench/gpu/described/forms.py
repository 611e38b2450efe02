"""What there is to say of a form: in words, of which kind it is, and whether cuDNN's answer to it is right."""

from __future__ import annotations

from collections.abc import Mapping

from bench.gpu.described.library import Answer
from brickrt.ops.cuda.cudnn.form import Form

NO_FULL_PRODUCTS = "cuDNN multiplies float32 matrices on tensor cores only, which round it"
NO_FULL_BROADCASTS = "in full float32 no engine adds what broadcasts along some of the spatial dimensions"


def described(form: Form) -> str:
    """A form in one line: "conv 1x64x56x56 * 64x64x3x3 -> 1x64x56x56 float32 fp32: add, relu"."""
    out, a, b = ("x".join(map(str, t.dims)) for t in form.tensors[:3])
    steps = ", ".join(step.fn for step in form.steps)
    settings = f" stride {'x'.join(map(str, form.strides))}" if set(form.strides) - {1} else ""
    return f"{form.kind} {a} * {b} -> {out}{settings} {_type(form)}: {steps or 'alone'}"


def _type(form: Form) -> str:
    dtype = form.tensors[1].dtype
    return f"{dtype} {form.precision}" if dtype == "float32" else dtype


def is_full(form: Form) -> bool:
    """Whether a form is to be computed in full float32."""
    return _type(form) == "float32 fp32"


def kind_of(form: Form) -> str:
    """What engines are made for, as "depthwise 3d float16" or "conv 2d float32 tf32"."""
    a, b = form.tensors[1:3]
    grouped = form.kind == "conv" and b.dims[1] < a.dims[1]
    kind = ("depthwise" if b.dims[1] == 1 else "grouped conv") if grouped else form.kind
    space = "" if form.kind == "matmul" else f" {len(a.dims) - 2}d"
    return f"{kind}{space} {_type(form)}"


def known_refusal(form: Form) -> str | None:
    """Why cuDNN is known to have no plan for a form; None where it should have one. Kernels compute such products, or
    what comes after them."""
    if not is_full(form):
        return None
    if form.kind == "matmul":
        return NO_FULL_PRODUCTS
    whole = form.tensors[0].dims
    parts = [t.dims for t in form.tensors[3:] if t.dims != whole and set(t.dims[2:]) != {1}]
    return NO_FULL_BROADCASTS if parts else None


def wrong(said: Mapping[Form, Answer]) -> list[str]:
    """What must not be, a line each: refusals without a known reason, crashes, and tensor cores in full float32."""
    found = []
    for form, answer in said.items():
        if answer.refused is not None and (answer.crashed or known_refusal(form) is None):
            found.append(f"{described(form)}: {answer.refused}")
        if answer.tensor_cores and is_full(form):
            found.append(f"{described(form)}: {answer.plan} uses tensor cores")
    return found
