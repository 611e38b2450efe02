"""Swin-T: attention within windows of 7x7 tokens, which every other block shifts. Tokens are [batch, height, width,
features]; the operators are those that torchvision's network is exported as."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network
from brickrt.zoo.tokens import BRANCH_GAIN, dense, layer_norm, mlp

if TYPE_CHECKING:
    import numpy as np

    from brickrt.zoo.layers import Activation, Net

# Blocks and heads at each resolution; features double from one to the next.
BLOCKS = (2, 3), (2, 6), (6, 12), (2, 24)
WIDTH = 96
PATCH = 4
WINDOW = 7
TOKENS = WINDOW * WINDOW
APART_SCORE = -100.0  # added to that of two tokens that only the shift has made neighbours


@network(
    name="swin-t",
    title="Swin-T",
    source="Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021",
    default_size=(224, 224),
    any_size=False,
)
def swin_t(net: Net, x: Activation) -> Activation:
    """Sizes are multiples of 4 from 32; where windows do not fit, zeros are appended."""
    net.require(minimum=32, multiple=PATCH)
    x = net.conv(x, "patch_embed", WIDTH, PATCH, stride=PATCH, pad=0, rectified=False)
    tokens = net.node("Transpose", "patch_embed.tokens", x.name, perm=[0, 2, 3, 1])
    x = replace(x, name=layer_norm(net, tokens, "patch_embed.norm", WIDTH), last=True)
    for i, (blocks, heads) in enumerate(BLOCKS):
        if i:
            x = _merge_patches(net, x, f"stages.{i}.merge")
        for j in range(blocks):
            x = _block(net, x, f"stages.{i}.{j}", heads, shifted=j % 2 == 1)
    tokens = layer_norm(net, x.name, "norm", x.channels)
    pixels = net.node("Transpose", "norm.pixels", tokens, perm=[0, 3, 1, 2])
    pooled = net.global_mean(replace(x, name=pixels, last=False), "avgpool")
    return net.linear(net.flatten(pooled, "flatten"), "head", 1000, rectified=False)


@dataclass(frozen=True)
class Windows:
    """How a block cuts its tokens: the extents with what is appended, and how far each axis is shifted."""

    extents: tuple[int, int]
    shifts: tuple[int, int]

    @staticmethod
    def of(extents: tuple[int, ...], shifted: bool) -> Windows:
        """Whole windows; an axis of one window is not shifted."""
        rows, columns = (-(-n // WINDOW) * WINDOW for n in extents)
        shifts = (WINDOW // 2 if shifted and n > WINDOW else 0 for n in (rows, columns))
        return Windows((rows, columns), (next(shifts), next(shifts)))

    @property
    def grid(self) -> tuple[int, int]:
        """How many windows there are along each axis."""
        return self.extents[0] // WINDOW, self.extents[1] // WINDOW

    def mask(self) -> np.ndarray:
        """float32 [1, windows, 1, token, token]: `APART_SCORE` for tokens of a window that come from apart, else 0."""
        import numpy as np  # here, so that listing networks does not load it

        rows, columns = (_regions(n, shift) for n, shift in zip(self.extents, self.shifts))
        (high, wide), region = self.grid, 3 * rows[:, None] + columns
        windows = region.reshape(high, WINDOW, wide, WINDOW).transpose(0, 2, 1, 3).reshape(1, -1, 1, TOKENS)
        return np.where(windows[..., None] == windows[..., None, :], 0, APART_SCORE).astype(np.float32)


def _regions(extent: int, shift: int) -> np.ndarray:
    """A number for each place along a shifted axis: places of a window with equal ones were neighbours before."""
    import numpy as np

    places = np.arange(extent)
    return (places >= extent - WINDOW).astype(int) + (places >= extent - shift) if shift else np.zeros(extent, int)


def _block(net: Net, x: Activation, name: str, heads: int, shifted: bool) -> Activation:
    width, windows = x.channels, Windows.of(x.spatial, shifted)
    y = layer_norm(net, x.name, f"{name}.norm1", width)
    y = _cut(net, _padded(net, y, f"{name}.pad", x.spatial, windows.extents), f"{name}.cut", width, windows)
    y = _attention(net, y, f"{name}.attn", width, heads, windows)
    y = _cropped(net, _joined(net, y, f"{name}.join", width, windows), f"{name}.crop", x.spatial, windows.extents)
    y = net.node("Add", f"{name}.add1", x.name, y)
    z = mlp(net, layer_norm(net, y, f"{name}.norm2", width), f"{name}.mlp", width, 4 * width)
    return x.like(net.node("Add", f"{name}.add2", y, z))


def _padded(net: Net, x: str, name: str, extents: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Zeros behind the last row and column, where there are fewer than wanted."""
    if extents == wanted:
        return x
    more = [to - n for n, to in zip(extents, wanted)]
    return net.node("Pad", name, x, net.shape(0, 0, 0, 0, 0, *more, 0), net.scalar(0.0))


def _cropped(net: Net, x: str, name: str, wanted: tuple[int, ...], extents: tuple[int, ...]) -> str:
    for axis, (to, n) in enumerate(zip(wanted, extents), 1):
        if to != n:
            x = net.node("Slice", f"{name}{axis}", x, net.shape(0), net.shape(to), net.shape(axis))
    return x


def _cut(net: Net, x: str, name: str, width: int, windows: Windows) -> str:
    """Windows [batch · windows, token, feature] of the shifted tokens."""
    for axis, shift in enumerate(windows.shifts, 1):
        x = _rolled(net, x, f"{name}.roll{axis}", axis, shift)
    high, wide = windows.grid
    x = net.node("Reshape", f"{name}.split", x, net.shape(-1, high, WINDOW, wide, WINDOW, width))
    x = net.node("Transpose", f"{name}.transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return net.node("Reshape", name, x, net.shape(-1, TOKENS, width))


def _joined(net: Net, x: str, name: str, width: int, windows: Windows) -> str:
    """What `_cut` has cut, put together and shifted back."""
    x = net.node("Reshape", f"{name}.split", x, net.shape(-1, *windows.grid, WINDOW, WINDOW, width))
    x = net.node("Transpose", f"{name}.transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = net.node("Reshape", name, x, net.shape(-1, *windows.extents, width))
    for axis, shift in enumerate(windows.shifts, 1):
        x = _rolled(net, x, f"{name}.roll{axis}", axis, -shift)
    return x


def _rolled(net: Net, x: str, name: str, axis: int, shift: int) -> str:
    """Element `shift` of an axis comes first, and those before it last; counted from the end where it is negative."""
    if not shift:
        return x
    end, at = net.shape(2**63 - 1), net.shape(axis)
    behind = net.node("Slice", f"{name}.behind", x, net.shape(shift), end, at)
    before = net.node("Slice", f"{name}.before", x, net.shape(0), net.shape(shift), at)
    return net.node("Concat", name, behind, before, axis=axis)


def _attention(net: Net, x: str, name: str, width: int, heads: int, windows: Windows) -> str:
    """Attention within each window, with a learned bias for each distance of two tokens."""
    part = width // heads
    qkv = dense(net, x, f"{name}.qkv", width, 3 * width)
    qkv = net.node("Reshape", f"{name}.split", qkv, net.shape(-1, TOKENS, 3, heads, part))
    qkv = net.node("Transpose", f"{name}.heads", qkv, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        net.node("Gather", f"{name}.{what}", qkv, net.ints(f"index.{k}", k), axis=0)
        for k, what in enumerate(("query", "key", "value"))
    )
    query = net.node("Mul", f"{name}.scale", query, net.scalar(part**-0.5))
    key = net.node("Transpose", f"{name}.key.transpose", key, perm=[0, 1, 3, 2])
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Add", f"{name}.bias", scores, _bias(net, f"{name}.positions", heads))
    scores = _masked(net, scores, f"{name}.mask", heads, windows)
    y = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", scores, axis=-1), value)
    y = net.node("Transpose", f"{name}.transpose", y, perm=[0, 2, 1, 3])
    y = net.node("Reshape", f"{name}.merge", y, net.shape(-1, TOKENS, width))
    return dense(net, y, f"{name}.proj", width, width, BRANCH_GAIN)


def _bias(net: Net, name: str, heads: int) -> str:
    """[1, head, token, token], read from a table of all distances."""
    import numpy as np

    row, column = np.divmod(np.arange(TOKENS), WINDOW)
    below, right = (each[:, None] - each + WINDOW - 1 for each in (row, column))
    index = net.ints("positions.index", ((2 * WINDOW - 1) * below + right).ravel())
    table = net.parameter(f"{name}.table", ((2 * WINDOW - 1) ** 2, heads), 0.5)
    bias = net.node("Gather", f"{name}.gather", table, index, axis=0)
    bias = net.node("Reshape", f"{name}.pairs", bias, net.shape(TOKENS, TOKENS, -1))
    bias = net.node("Transpose", f"{name}.transpose", bias, perm=[2, 0, 1])
    return net.node("Unsqueeze", name, bias, net.shape(0))


def _masked(net: Net, scores: str, name: str, heads: int, windows: Windows) -> str:
    """Scores in which tokens from apart do not attend to each other."""
    if not any(windows.shifts):
        return scores
    high, wide = windows.grid
    mask = net.weight(f"mask.{high}x{wide}.{windows.shifts[0]}x{windows.shifts[1]}", windows.mask())
    scores = net.node("Reshape", f"{name}.windows", scores, net.shape(-1, high * wide, heads, TOKENS, TOKENS))
    scores = net.node("Add", f"{name}.add", scores, mask)
    return net.node("Reshape", name, scores, net.shape(-1, heads, TOKENS, TOKENS))


def _merge_patches(net: Net, x: Activation, name: str) -> Activation:
    """Half the resolution and twice the features, each of four neighbours."""
    even = tuple(n + n % 2 for n in x.spatial)
    y = _padded(net, x.name, f"{name}.pad", x.spatial, even)
    parts = [_every_second(net, y, f"{name}.{row}{column}", row, column) for column in (0, 1) for row in (0, 1)]
    y = net.node("Concat", f"{name}.concat", *parts, axis=-1)
    y = layer_norm(net, y, f"{name}.norm", 4 * x.channels)
    y = dense(net, y, f"{name}.reduction", 4 * x.channels, 2 * x.channels, bias=False)
    return replace(x, name=y, channels=2 * x.channels, spatial=tuple(n // 2 for n in even))


def _every_second(net: Net, x: str, name: str, row: int, column: int) -> str:
    end, two = net.shape(2**63 - 1), net.shape(2)
    y = net.node("Slice", f"{name}.rows", x, net.shape(row), end, net.shape(1), two)
    return net.node("Slice", name, y, net.shape(column), end, net.shape(2), two)
