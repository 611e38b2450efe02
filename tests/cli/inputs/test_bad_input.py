"""Bad input: one line that names the thing, exit code 2, nothing on standard output, no output file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from tests.support.cli_models import conv_model, same_model, save, value


@pytest.fixture(scope="module")
def files(tmp_path_factory, models) -> Path:
    """Good and bad files of all kinds."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("conv.onnx", "sum.onnx"):
        (folder / name).write_bytes((models / name).read_bytes())
    _bad_models(folder)
    _bad_arrays(folder)
    _images(folder)
    return folder


def _bad_models(folder: Path) -> None:
    conv = (folder / "conv.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(conv[: len(conv) // 2])
    (folder / "text.onnx").write_text("this is no model at all\n")
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "folder.onnx").mkdir()
    x, y = [value("x", (2,))], [value("y", (2,))]
    relu = [helper.make_node("Relu", ["x"], ["y"], name="r")]
    save(folder / "old.onnx", relu, x, y, opset=5)
    save(folder / "new.onnx", relu, x, y, opset=999)
    save(folder / "domain.onnx", [helper.make_node("F", ["x"], ["y"], name="f", domain="acme")], x, y, domains=["acme"])
    save(folder / "spelling.onnx", [helper.make_node("Rleu", ["x"], ["y"], name="r")], x, y)
    matmul = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    save(folder / "product.onnx", matmul, [value("x", ("N", "K"))], [value("y", None)], [("w", np.ones((3, 2), "f4"))])
    same_model(folder / "any.onnx", None)
    same_model(folder / "text_input.onnx", (2,), TensorProto.STRING)
    same_model(folder / "bytes.onnx", (1, 3, 8, 8), TensorProto.UINT8)
    conv_model(folder / "five.onnx", (1, 5, 8, 8))
    conv_model(folder / "open.onnx", ("N", 3, "H", "W"))
    pool = [helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2, 2])]
    save(folder / "pool.onnx", pool, [value("x", ("N", 3, "H", "W"))], [value("y", None)])
    image = [value("x", (1, 3, 8, 8))]
    grown = {
        "resized": ("Resize", ["x", "", "n"], np.array([1, 1, 1e6, 1e7], "f4")),
        "upsampled": ("Resize", ["x", "", "n"], np.array([1, 1, 1e5, 1e5], "f4")),
        "tiled": ("Tile", ["x", "n"], np.array([1, 1, 10**7, 10**7])),
        "expanded": ("Expand", ["x", "n"], np.array([10**15, 3, 8, 8])),
        "padded": ("Pad", ["x", "n"], np.array([0, 0, 0, 0, 0, 0, 10**8, 10**8])),
    }
    for name, (op, ins, amounts) in grown.items():
        node = helper.make_node(op, ins, ["y"], name="blow up", **({"mode": "nearest"} if op == "Resize" else {}))
        save(folder / f"{name}.onnx", [node], image, [value("y", None)], [("n", amounts)])


def _bad_arrays(folder: Path) -> None:
    good = np.zeros((1, 3, 8, 8), np.float32)
    np.save(folder / "good.npy", good)
    np.save(folder / "flat.npy", good.reshape(-1))
    np.save(folder / "complex.npy", good.astype(np.complex64))
    np.save(folder / "nameless.npy", good.view("V4"))
    np.save(folder / "wide.npy", np.zeros((1, 3, 8, 9), np.float32))
    np.save(folder / "four.npy", np.zeros((1, 4), np.float32))
    np.save(folder / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    content = (folder / "good.npy").read_bytes()
    (folder / "cut.npy").write_bytes(content[:200])
    (folder / "stub.npy").write_bytes(content[:7])
    with (folder / "huge.npy").open("wb") as file:
        header = {"shape": (10**13,), "fortran_order": False, "descr": "<f4"}
        np.lib.format.write_array_header_1_0(file, header)
    (folder / "text.npy").write_text("1 2 3")
    (folder / "numbers.csv").write_text("1,2,3")
    np.savez(folder / "good.npz", x=good)
    np.savez(folder / "misnamed.npz", z=good)
    np.savez(folder / "extra.npz", x=good, z=good)
    np.savez(folder / "pickled.npz", x=np.array([{"a": 1}], object))
    packed = (folder / "good.npz").read_bytes()
    (folder / "cut.npz").write_bytes(packed[:300])
    (folder / "flipped.npz").write_bytes(packed[:200] + b"\xff\xff" + packed[202:])
    with zipfile.ZipFile(folder / "foreign.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")


def _images(folder: Path) -> None:
    picture = Image.fromarray(np.zeros((6, 7, 3), np.uint8))
    picture.save(folder / "small.png")
    picture.resize((8, 8)).save(folder / "fits.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)).save(folder / "cut.png")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[:120])
    (folder / "text.jpg").write_text("no image")


MODELS = [
    (["absent.onnx"], "absent.onnx"),
    (["folder.onnx"], "folder"),
    (["text.onnx"], "not an ONNX model"),
    (["empty.onnx"], "not an ONNX model"),
    (["cut.onnx"], "cut.onnx"),
    (["old.onnx"], "opset 5"),
    (["new.onnx"], "opset 999"),
    (["domain.onnx"], "acme"),
    (["spelling.onnx"], "Rleu"),
]

INPUTS = [
    (["conv.onnx"], "'x'"),
    (["conv.onnx", "--input", "absent.npy"], "absent.npy"),
    (["conv.onnx", "--input", "x="], "names no file"),
    (["conv.onnx", "--input", ""], "--input is empty"),
    (["conv.onnx", "--input", "z=good.npy"], "'z'"),
    (["conv.onnx", "--input", "flat.npy"], "has the shape [192], the model takes [any, 3, 8, 8]"),
    (["conv.onnx", "--input", "complex.npy"], "complex.npy: holds complex64, the model takes float32: convert"),
    (["conv.onnx", "--input", "nameless.npy"], "nameless.npy: holds 4 bytes an element without a type"),
    (["conv.onnx", "--input", "wide.npy"], "dimension 3"),
    (["conv.onnx", "--input", "good.npy", "--input", "x=good.npy"], "twice"),
    (["conv.onnx", "--input", "pickled.npy"], "pickled"),
    (["conv.onnx", "--input", "cut.npy"], "damaged"),
    (["conv.onnx", "--input", "stub.npy"], "damaged"),
    (["conv.onnx", "--input", "huge.npy"], "damaged"),
    (["conv.onnx", "--input", "text.npy"], "text.npy"),
    (["conv.onnx", "--input", "numbers.csv"], ".npy"),
    (["conv.onnx", "--input", "folder.onnx"], ".npy"),
    (["conv.onnx", "--input", "misnamed.npz"], "'z'"),
    (["conv.onnx", "--input", "extra.npz"], "'z'"),
    (["conv.onnx", "--input", "x=misnamed.npz", "--input", "x=good.npy"], "give a folder"),
    (["conv.onnx", "--input", "nothing*.npy"], "matches no file"),
    (["sum.onnx", "--input", "a=*.npy", "--input", "b=g*.np*"], "give one, or as many"),
    (["conv.onnx", "--input", "pickled.npz"], "pickled"),
    (["conv.onnx", "--input", "cut.npz"], "cut.npz"),
    (["conv.onnx", "--input", "flipped.npz"], "damaged"),
    (["conv.onnx", "--input", "foreign.npz"], "no array"),
    (["conv.onnx", "--input", "text.npz"], "no such file"),
    (["sum.onnx", "--input", "four.npy"], "'a', 'b'"),
    (["sum.onnx", "--input", "a=four.npy"], "'b'"),
    (["product.onnx", "--input", "four.npy"], "product"),
    (["text_input.onnx", "--random"], "'x'"),
]

IMAGES = [
    (["conv.onnx", "--input", "small.png"], "--resize 8x8"),
    (["conv.onnx", "--input", "cut.png"], "damaged"),
    (["conv.onnx", "--input", "text.jpg"], "text.jpg"),
    (["sum.onnx", "--input", "a=fits.png", "--input", "b=four.npy"], "fits.png"),
    (["five.onnx", "--input", "fits.png"], "5 channels"),
    (["bytes.onnx", "--input", "fits.png", "--mean", "1"], "--mean"),
    (["conv.onnx", "--input", "fits.png", "--mean", "1,2"], "--mean"),
    (["conv.onnx", "--input", "fits.png", "--mean", "a,b,c"], "--mean"),
    (["conv.onnx", "--input", "fits.png", "--mean", "nan"], "--mean"),
    (["conv.onnx", "--input", "fits.png", "--std", "1,0,1"], "--std"),
    (["conv.onnx", "--input", "fits.png", "--std=-1"], "--std"),
    (["conv.onnx", "--random", "--std", "0"], "--std"),
    (["conv.onnx", "--input", "fits.png", "--resize", "8"], "--resize"),
    (["conv.onnx", "--input", "fits.png", "--resize", "0x8"], "--resize"),
    (["conv.onnx", "--input", "fits.png", "--layout", "chwn"], "--layout"),
    (["conv.onnx", "--input", "good.npy", "--scale", "2"], "--scale"),
    (["conv.onnx", "--input", "fits.png", "--scale", "nan"], "--scale"),
    (["conv.onnx", "--input", "fits.png", "--scale", "0"], "--scale"),
]

OPTIONS = [
    (["conv.onnx", "--input", "good.npy", "--random"], "--random"),
    (["conv.onnx", "--input", "good.npy", "--seed", "1"], "--seed"),
    (["conv.onnx", "--input", "good.npy", "--shape", "x=1,3,8,8"], "--shape"),
    (["conv.onnx", "--random", "--shape", "x=1,3,8"], "4 numbers"),
    (["conv.onnx", "--random", "--shape", "x=1,4,8,8"], "dimension 1"),
    (["conv.onnx", "--random", "--shape", "z=1,3,8,8"], "'z'"),
    (["conv.onnx", "--random", "--shape", "1,3,8,8"], "--shape"),
    (["conv.onnx", "--random", "--shape", "x=1,a,8,8"], "--shape"),
    (["conv.onnx", "--random", "--shape", "x=1,3,8,8", "--shape", "x=1,3,8,8"], "twice"),
    (["sum.onnx", "--random", "--shape", "a=2,4", "--shape", "b=3,4"], "'N'"),
    (["any.onnx", "--random"], "--shape x="),
    (["pool.onnx", "--random"], "x[2] (H), x[3] (W): give --shape"),
    (["open.onnx", "--random", "--shape", "x=1,3,10000000,10000000"], "--shape x=1,3,10000000,10000000 takes"),
    (["resized.onnx", "--random"], "'blow up'"),
    (["upsampled.onnx", "--random"], "'blow up'"),
    (["tiled.onnx", "--random"], "'blow up'"),
    (["expanded.onnx", "--random"], "'blow up'"),
    (["padded.onnx", "--random"], "'blow up'"),
    (["conv.onnx", "--random", "--seed", "-1"], "--seed"),
    (["conv.onnx", "--random", "--brick", "0"], "brick"),
    (["conv.onnx", "--random", "--brick", "-4"], "brick"),
    (["conv.onnx", "--random", "--brick", "two"], "--brick"),
    (["conv.onnx", "--random", "--max-layers", "0"], "max_layers"),
    (["conv.onnx", "--random", "--threads", "0"], "threads"),
    (["conv.onnx", "--random", "--threads", "1000000"], "threads"),
    (["conv.onnx", "--random", "--repeat", "0"], "--repeat"),
    (["conv.onnx", "--random", "--device", "tpu"], "--device"),
    (["conv.onnx", "--random", "--strategy", "fast"], "--strategy"),
    (["conv.onnx", "--random", "--colour"], "--colour"),
    (["conv.onnx", "--random", "more"], "more"),
    ([], "MODEL"),
]


def _label(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize(("words", "named"), [*MODELS, *INPUTS, *IMAGES, *OPTIONS], ids=_label)
def test_run_refuses(files, call, monkeypatch, words, named):
    monkeypatch.chdir(files)
    called = call("run", *words, "--output", "out.npz")
    _check_refusal(called, named)
    assert not (files / "out.npz").exists()
    assert not list(files.glob(".out*"))


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("nowhere/out.npz", "nowhere"),
        ("out.txt", ".npz"),
        ("out", ".npz"),
        ("taken.npz", "folder"),
        ("out.npy", "2 outputs"),
    ],
)
def test_run_refuses_outputs_before_it_reads_inputs(files, call, monkeypatch, tmp_path, output, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.npz").mkdir()
    _check_refusal(call("run", files / "sum.onnx", "--input", "absent.npy", "--output", output), named)
    assert [p.name for p in tmp_path.iterdir()] == ["taken.npz"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_run_refuses_a_folder_without_permission(files, call, tmp_path):
    tmp_path.chmod(0o500)
    _check_refusal(call("run", files / "sum.onnx", "--random", "--output", tmp_path / "out.npz"), "permissions")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        *[(["plan", *words], named) for words, named in MODELS],
        (["plan", "conv.onnx", "--brick", "0"], "brick"),
        (["plan", "conv.onnx", "--device-spec", "abacus"], "abacus"),
        (["plan", "conv.onnx", "--shape", "x=1,3"], "4 numbers"),
        (["plan", "any.onnx"], "--shape x="),
        (["plan", "pool.onnx"], "x[3] (W): give --shape"),
        (["plan", "open.onnx", "--shape", "x=1,3,1000000,1000000"], "GiB"),
        (["plan", "resized.onnx"], "'blow up'"),
        (["plan", "product.onnx", "--shape", "x=1,7"], "product"),
        (["zoo", "export", "alexnet", "a.onnx"], "alexnet"),
        (["zoo", "export", "resnet50", "nowhere/a.onnx"], "nowhere"),
        (["zoo", "export", "resnet50", "a.onnx", "--size", "big"], "--size"),
        (["zoo", "export", "resnet50", "a.onnx", "--size", "8x8x8"], "size"),
        (["zoo", "export", "resnet50", "a.onnx", "--batch", "-1"], "--batch"),
        (["zoo", "export", "resnet50"], "OUT"),
        (["run", "sum.onnx", "--random", "--precision", "fp16"], "precision 'fp16'"),
        (["plan", "sum.onnx", "--precision", "fp16"], "precision 'fp16'"),
        (["zoo", "paint"], "paint"),
        (["paint"], "paint"),
    ],
    ids=_label,
)
def test_other_commands_refuse(files, call, monkeypatch, words, named):
    monkeypatch.chdir(files)
    _check_refusal(call(*words), named)
    assert not (files / "a.onnx").exists()


def test_control_characters_in_names_are_not_obeyed(call, tmp_path):
    called = call("run", tmp_path / "\x1b[31mred.onnx", "--random")
    _check_refusal(called, "\\x1b[31mred.onnx")
    assert "\x1b" not in called.err


def test_debug_shows_where_an_error_comes_from(call, files):
    called = call("run", files / "absent.onnx", "--debug")
    assert called.code == 2
    assert "Traceback" in called.err and called.err.splitlines()[-1].startswith("brickrt: ")


def _check_refusal(called, named):
    assert called.out == ""
    lines = called.err.splitlines()
    assert len(lines) == 1, called.err
    assert lines[0].startswith("brickrt: ") and named in lines[0], called.err
    assert "internal error" not in lines[0]
    assert called.code == 2
