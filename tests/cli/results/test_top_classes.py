"""The likeliest classes, by name."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.cli.results.top_classes import class_names, top_classes, top_lines
from brickrt.graph.errors import BrickError
from tests.cli.results.test_decisions import ending


def test_names_of_imagenet():
    names = class_names(None, 1000)
    assert len(set(names)) == 1000
    known = {
        0: "tench",
        207: "golden retriever",
        281: "tabby",
        504: "coffee mug",
        817: "sports car",
        999: "toilet tissue",
    }
    assert {number: names[number] for number in known} == known
    assert class_names(None, 1001)[:2] == ("background", "tench") and class_names(None, 3)[2] == "class 2"


def test_scores_go_through_a_softmax_unless_they_did(tmp_path):
    scores = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    found = top_classes(ending(tmp_path, "Relu"), scores, 2, None)
    assert [(one.number, one.name) for one in found] == [(1, "class 1"), (2, "class 2")]
    assert [one.share for one in found] == pytest.approx([0.6, 0.3], rel=1e-6)
    assert top_classes(ending(tmp_path, "Softmax"), np.exp(scores), 1, None)[0].share == pytest.approx(0.6)
    assert top_lines(found) == ["  60.0%  class 1", "  30.0%  class 2"]


def test_names_from_a_file(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n\n")
    assert class_names(tmp_path / "names.txt", 2) == ("cat", "dog")
    with pytest.raises(BrickError, match="has 2 names, the model 3 classes"):
        class_names(tmp_path / "names.txt", 3)
    (tmp_path / "image.txt").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(BrickError, match="is no text"):
        class_names(tmp_path / "image.txt", 3)


def test_what_has_no_classes(tmp_path):
    with pytest.raises(BrickError, match="not one number for each class"):
        top_classes(ending(tmp_path, "Relu"), np.zeros((1, 3, 4, 4), np.float32), 5, None)
