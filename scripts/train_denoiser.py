"""Trains the denoiser of `brickrt demo`, and writes it as ONNX.

    pip install torch scikit-image scikit-learn matplotlib
    python scripts/train_denoiser.py --out brickrt/demo/denoiser.onnx [--minutes 20] [--resume state.pt]

The network works at half the resolution: 2×2 pixels become channels (SpaceToDepth), then come blocks after NAFNet
(Chen et al., ECCV 2022) without norms and channel attention, then channels become pixels again; what it finds is the
noise, which is subtracted. Gates multiply, so that values which no photograph leads to would grow from block to block
beyond float32: pixels are cut off at 0 and 1, and what a block gives at BOUND, several times what photographs with
noise reach (3.3). A picture of odd height or width gets its last row or column twice inside. It learns from
photographs that scikit-image, scikit-learn and matplotlib carry, at several scales, all but the astronaut, on whom it
is judged.
"""

from __future__ import annotations

import argparse
import random
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import nn
from torch.nn import functional as fn

WIDTH, BLOCKS = 32, 10
SIGMA = 25 / 255
PATCH, BATCH = 64, 8
RATE = 1e-3
BOUND = 16.0
TRAINED = {
    "skimage": "camera coffee chelsea motorcycle_left ihc brick grass gravel hubble_deep_field retina rocket".split(),
    "sklearn": ["china", "flower"],
    "matplotlib": ["grace_hopper"],
}
FOLDERS = {"skimage": "data", "sklearn": "datasets/images", "matplotlib": "mpl-data/sample_data"}


class DenoiserBlock(nn.Module):
    """x + w₂·gate(depthwise(w₁·x)), then x + w₄·gate(w₃·x); a gate multiplies one half of the channels by the other."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Conv2d(WIDTH, 2 * WIDTH, 1)
        self.depth = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1, groups=2 * WIDTH)
        self.project = nn.Conv2d(WIDTH, WIDTH, 1)
        self.widen = nn.Conv2d(WIDTH, 2 * WIDTH, 1)
        self.narrow = nn.Conv2d(WIDTH, WIDTH, 1)
        for last in (self.project, self.narrow):
            nn.init.normal_(last.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, WIDTH, H, W] to the same shape."""
        a, b = self.depth(self.expand(x)).chunk(2, dim=1)
        x = x + self.project(a * b)
        a, b = self.widen(x).chunk(2, dim=1)
        return x + self.narrow(a * b)


class Denoiser(nn.Module):
    """[N, 3, H, W] in 0…1 → the same without noise; H and W even, as all patches are."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(12, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(DenoiserBlock() for _ in range(BLOCKS))
        self.leave = nn.Conv2d(WIDTH, 12, 3, padding=1)
        nn.init.normal_(self.leave.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The picture without the noise that the network finds."""
        inner = self.enter(to_depth(x))
        for block in self.blocks:
            inner = block(inner).clamp(-BOUND, BOUND)
        return x - to_space(self.leave(inner))


def to_depth(x: torch.Tensor) -> torch.Tensor:
    """ONNX's SpaceToDepth by 2: place in the 2×2 block first, then channel."""
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def to_space(x: torch.Tensor) -> torch.Tensor:
    """ONNX's DepthToSpace by 2, mode DCR: the inverse."""
    n, c, h, w = x.shape
    return x.view(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


# ---- images


def photographs() -> list[Image.Image]:
    """The photographs that are learnt from, in colour."""
    found = []
    for package, names in TRAINED.items():
        folder = Path(str(files(package))) / FOLDERS[package]
        found += [Image.open(next(folder.glob(f"{name}.*"))).convert("RGB") for name in names]
    return found


def patch(photos: list[Image.Image], rng: random.Random) -> np.ndarray:
    """A square of a photograph at a random scale, turned and mirrored: [3, PATCH, PATCH]."""
    photo = rng.choice(photos)
    size = int(PATCH / rng.choice([1, 1, 0.7, 1.5, 2, 3, 4]))
    size = min(max(size, PATCH // 4), *photo.size)
    x, y = rng.randint(0, photo.width - size), rng.randint(0, photo.height - size)
    square = photo.crop((x, y, x + size, y + size)).resize((PATCH, PATCH), Image.Resampling.BICUBIC)
    pixels = np.asarray(square, np.float32).transpose(2, 0, 1) / 255
    pixels = np.rot90(pixels, rng.randrange(4), (1, 2))
    return np.ascontiguousarray(pixels[:, :, ::-1] if rng.random() < 0.5 else pixels)


def noisy(clean: torch.Tensor) -> torch.Tensor:
    """With normal noise, as eight bits hold it."""
    return ((clean + SIGMA * torch.randn_like(clean)).clamp(0, 1) * 255).round() / 255


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    """Peak signal-to-noise ratio in dB, of values in 0…1."""
    return float(-10 * torch.log10(((a - b) ** 2).mean()))


def judged() -> torch.Tensor:
    """The astronaut at twice her size."""
    photo = Image.open(Path(str(files("skimage"))) / "data" / "astronaut.png").convert("RGB")
    photo = photo.resize((2 * photo.width, 2 * photo.height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / 255)


# ---- training


def train(network: Denoiser, minutes: float, seed: int) -> None:
    """Trains for so many minutes; the rate falls along a cosine."""
    rng, photos = random.Random(seed), photographs()
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    started, step, shown = time.monotonic(), 0, 0.0
    while (spent := (time.monotonic() - started) / 60 / minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 100) * (0.5 + 0.5 * np.cos(np.pi * spent)) + 1e-6
        clean = torch.from_numpy(np.stack([patch(photos, rng) for _ in range(BATCH)]))
        loss = fn.mse_loss(network(noisy(clean)), clean).add(1e-6).log()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.2)
        optimizer.step()
        step += 1
        if not torch.isfinite(loss):
            raise SystemExit("the training has diverged: try another seed or a lower rate")
        if spent - shown > 0.05:
            shown = spent
            report(network, f"{100 * spent:3.0f} %, step {step}")


def report(network: Denoiser, when: str) -> None:
    """Prints how much less noise the judged picture has."""
    clean = judged()[:, :, 256:640, 256:640]
    torch.manual_seed(0)
    before = noisy(clean)
    with torch.no_grad():
        after = network(before).clamp(0, 1)
    print(f"{when}: PSNR {psnr(before, clean):.2f} → {psnr(after, clean):.2f} dB", flush=True)


# ---- ONNX


class NodeWriter:
    """Collects nodes, each named after its output, and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], output: str, **attrs: int | str | list[int]) -> str:
        """Adds a node; gives its output."""
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attrs))
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        """Adds a constant; gives its name."""
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def convolve(self, name: str, x: str, layer: nn.Conv2d) -> str:
        """Adds a convolution with the layer's weights."""
        weights = [self.constant(f"{name}.{p}", getattr(layer, p).detach().numpy()) for p in ("weight", "bias")]
        pad = [layer.padding[0]] * 4  # type: ignore[index]
        return self.node("Conv", [x, *weights], name, pads=pad, group=layer.groups)

    def gate(self, name: str, x: str) -> str:
        """Multiplies one half of the channels by the other."""
        halves = [f"{name}.a", f"{name}.b"]
        self.nodes.append(helper.make_node("Split", [x], halves, f"{name}.split", axis=1, num_outputs=2))
        return self.node("Mul", halves, name)

    def even(self, x: str) -> tuple[str, str]:
        """Repeats the last row and column where there is an odd number of them; gives the result and the size of `x`,
        height and width."""
        size = self.node("Shape", [x], "size", start=2)
        odd = self.node("Mod", [size, self.constant("two", np.array([2]))], "odd")
        none_before = self.constant("none", np.zeros(6, np.int64))
        pads = self.node("Concat", [none_before, odd], "pads", axis=0)
        return self.node("Pad", [x, pads], "even", mode="edge"), size


def as_onnx(network: Denoiser) -> onnx.ModelProto:
    """The trained network for any batch, height and width."""
    out = NodeWriter()
    black, white = (out.constant(name, np.float32(value)) for name, value in (("black", 0), ("white", 1)))
    bounds = [out.constant(name, np.float32(value)) for name, value in (("least", -BOUND), ("most", BOUND))]
    within, size = out.even(out.node("Clip", ["noisy", black, white], "within"))
    x = out.convolve("enter", out.node("SpaceToDepth", [within], "halved", blocksize=2), network.enter)
    for k, block in enumerate(network.blocks):
        name = f"block{k}"
        inner = out.convolve(f"{name}.depth", out.convolve(f"{name}.expand", x, block.expand), block.depth)
        change = out.convolve(f"{name}.project", out.gate(f"{name}.gate", inner), block.project)
        x = out.node("Add", [x, change], f"{name}.first")
        inner = out.gate(f"{name}.gate2", out.convolve(f"{name}.widen", x, block.widen))
        x = out.node("Add", [x, out.convolve(f"{name}.narrow", inner, block.narrow)], f"{name}.second")
        x = out.node("Clip", [x, *bounds], f"{name}.bounded")
    noise = out.node("DepthToSpace", [out.convolve("leave", x, network.leave)], "noise", blocksize=2, mode="DCR")
    whole = out.node("Sub", [within, noise], "whole")
    corner, space = out.constant("corner", np.zeros(2, np.int64)), out.constant("space", np.array([2, 3]))
    out.node("Slice", [whole, corner, size, space], "clean")
    shape = ["batch", 3, "height", "width"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("noisy", "clean")]
    graph = helper.make_graph(out.nodes, "denoiser", ends[:1], ends[1:], out.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Trains, and writes the network to --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=Path, help="state to begin with, and to keep")
    asked = parser.parse_args()
    network = Denoiser()
    if asked.resume and asked.resume.exists():
        network.load_state_dict(torch.load(asked.resume))
    train(network, asked.minutes, asked.seed)
    if asked.resume:
        torch.save(network.state_dict(), asked.resume)
    onnx.save(as_onnx(network), asked.out)
    report(network, "trained")


if __name__ == "__main__":
    main()
