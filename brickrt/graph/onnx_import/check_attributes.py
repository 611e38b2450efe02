"""Checks attributes of standard operators for what ONNX's checker lets pass: names, axes, and words of a fixed set."""

from __future__ import annotations

import onnx
from onnx import AttributeProto

from brickrt.graph.errors import ModelError
from brickrt.ops.types import MOST_DIMENSIONS


def check_attributes(node: onnx.NodeProto) -> None:
    """Raises ModelError for an attribute without a name or given twice, an axis that no tensor has, an unknown word,
    and for more scanned inputs than there are.

    Such axes crash ONNX's own native code: nothing later may see them.
    """
    what = f"{node.op_type} node '{node.name or next(iter(node.output), '')}'"
    names = [a.name for a in node.attribute]
    if "" in names:
        raise ModelError(f"{what} has an attribute without a name")
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ModelError(f"{what}: attribute {twice} is given twice")
    for attribute in node.attribute:
        if attribute.name == "num_scan_inputs" and not 0 < attribute.i <= len(node.input):
            raise ModelError(f"{what}: num_scan_inputs {attribute.i} is outside 1 to its {len(node.input)} inputs")
        _check_range(attribute, what)
        _check_word(attribute, node.op_type, what)


def _check_range(attribute: AttributeProto, what: str) -> None:
    if attribute.name in _RANGES:
        least, end = _RANGES[attribute.name]
        values = [attribute.i] if attribute.type == AttributeProto.INT else attribute.ints
        wrong = next((v for v in values if not least <= v < end), None)
        if wrong is not None:
            raise ModelError(f"{what}: {attribute.name} {wrong} is outside {least} to {end - 1}")


def _check_word(attribute: AttributeProto, op_type: str, what: str) -> None:
    known = _WORDS.get((op_type, attribute.name)) or _WORDS.get(("", attribute.name))
    if known is None or attribute.ref_attr_name or attribute.type != AttributeProto.STRING:
        return
    word = attribute.s.decode("utf-8", "replace")
    if word not in known.split():
        raise ModelError(f"{what}: {attribute.name} '{word}' is none of {', '.join(known.split())}")


_SWITCHES = (
    *("keepdims", "transA", "transB", "noop_with_empty_axes", "exclusive", "reverse", "align_corners", "ceil_mode"),
    *("count_include_pad", "select_last_index", "largest", "sorted", "fmod", "upper", "storage_order", "antialias"),
    *("exclude_outside", "center_point_box", "input_forget", "linear_before_reset", "layout", "inverse", "onesided"),
    *("periodic", "is_causal", "allowzero"),
)
_AXES = (-MOST_DIMENSIONS, MOST_DIMENSIONS)
_RANGES = {
    **dict.fromkeys(("axis", "axes", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes"), _AXES),
    **dict.fromkeys(("perm", "batch_dims"), (0, MOST_DIMENSIONS)),
    **dict.fromkeys(_SWITCHES, (0, 2)),
    "qk_matmul_output_mode": (0, 4),
}
"""Integer attributes that stand for axes, or for yes and no: the least, and the first that is too large."""

_LOSS = "none sum mean"
_SCATTERED = "none add mul min max"
_WORDS = {
    ("", "auto_pad"): "NOTSET SAME_UPPER SAME_LOWER VALID",
    ("LSTM", "direction"): "forward reverse bidirectional",
    ("GRU", "direction"): "forward reverse bidirectional",
    ("RNN", "direction"): "forward reverse bidirectional",
    ("BitShift", "direction"): "LEFT RIGHT",
    ("Pad", "mode"): "constant reflect edge wrap",
    ("Resize", "mode"): "nearest linear cubic",
    ("Upsample", "mode"): "nearest linear",
    ("GridSample", "mode"): "bilinear nearest bicubic linear cubic",
    ("RoiAlign", "mode"): "avg max",
    ("DepthToSpace", "mode"): "DCR CRD",
    ("TfIdfVectorizer", "mode"): "TF IDF TFIDF",
    ("GridSample", "padding_mode"): "zeros border reflection",
    ("Resize", "nearest_mode"): "round_prefer_floor round_prefer_ceil floor ceil",
    ("Resize", "keep_aspect_ratio_policy"): "stretch not_larger not_smaller",
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn "
        "tf_crop_and_resize"
    ),
    ("RoiAlign", "coordinate_transformation_mode"): "half_pixel output_half_pixel",
    ("ScatterND", "reduction"): _SCATTERED,
    ("ScatterElements", "reduction"): _SCATTERED,
    ("SoftmaxCrossEntropyLoss", "reduction"): _LOSS,
    ("NegativeLogLikelihoodLoss", "reduction"): _LOSS,
    ("Gelu", "approximate"): "none tanh",
    ("StringNormalizer", "case_change_action"): "LOWER UPPER NONE",
}
"""The words that a text attribute of an operator, or of any, may be."""
