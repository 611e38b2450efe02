"""Trains the denoiser of `brickrt demo`, and writes it as ONNX.

    pip install torch scikit-image scikit-learn matplotlib
    python scripts/train_denoiser.py --out brickrt/demo/denoiser.onnx [--minutes 20] [--resume state.pt]

The network works at half the resolution: 2×2 pixels become channels (SpaceToDepth), then come blocks after NAFNet
(Chen et al., ECCV 2022) without norms and channel attention, then channels become pixels again; what it finds is the
noise, which is subtracted. It learns from photographs that scikit-image, scikit-learn and matplotlib carry, at several
scales, all but the astronaut, on whom it is judged.
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
    """[N, 3, H, W] in 0…1 → the same without noise; H and W even."""

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
            inner = block(inner)
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


def as_onnx(network: Denoiser) -> onnx.ModelProto:
    """The trained network for any batch and any even height and width."""
    nodes, constants = [], []

    def convolve(name: str, x: str, layer: nn.Conv2d) -> str:
        for part in ("weight", "bias"):
            constants.append(numpy_helper.from_array(getattr(layer, part).detach().numpy(), f"{name}.{part}"))
        pad = [layer.padding[0]] * 4  # type: ignore[index]
        inputs = [x, f"{name}.weight", f"{name}.bias"]
        nodes.append(helper.make_node("Conv", inputs, [name], name, pads=pad, group=layer.groups))
        return name

    def gate(name: str, x: str) -> str:
        nodes.append(helper.make_node("Split", [x], [f"{name}.a", f"{name}.b"], f"{name}.split", axis=1, num_outputs=2))
        nodes.append(helper.make_node("Mul", [f"{name}.a", f"{name}.b"], [name], name))
        return name

    def add(name: str, a: str, b: str) -> str:
        nodes.append(helper.make_node("Add", [a, b], [name], name))
        return name

    nodes.append(helper.make_node("SpaceToDepth", ["noisy"], ["halved"], "halved", blocksize=2))
    x = convolve("enter", "halved", network.enter)
    for k, block in enumerate(network.blocks):
        inner = convolve(f"block{k}.depth", convolve(f"block{k}.expand", x, block.expand), block.depth)
        x = add(f"block{k}.first", x, convolve(f"block{k}.project", gate(f"block{k}.gate", inner), block.project))
        inner = gate(f"block{k}.gate2", convolve(f"block{k}.widen", x, block.widen))
        x = add(f"block{k}.second", x, convolve(f"block{k}.narrow", inner, block.narrow))
    convolve("leave", x, network.leave)
    nodes.append(helper.make_node("DepthToSpace", ["leave"], ["noise"], "noise", blocksize=2, mode="DCR"))
    nodes.append(helper.make_node("Sub", ["noisy", "noise"], ["clean"], "clean"))
    shape = ["batch", 3, "height", "width"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("noisy", "clean")]
    graph = helper.make_graph(nodes, "denoiser", ends[:1], ends[1:], constants)
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
