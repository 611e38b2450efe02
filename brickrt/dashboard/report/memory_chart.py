"""Resident memory over time as a picture: SVG, with the limit and the projection as lines and passes marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from brickrt.dashboard.units import size_text

LEFT, RIGHT, TOP, BOTTOM = 66, 190, 34, 40  # around the plot, in pixels; the lines' names stand on the right
ABOVE = 1.06  # of the highest line, so that it does not lie on the edge
TICKS = 5  # about so many along an axis
ASIDE = 15  # pixels between names that would lie on each other
LETTER = 7  # pixels of a letter, about
INK, SOFT, AREA, CURVE = "#1d2430", "#66707f", "#c9dbee", "#3a6ea5"
LIMIT_COLOUR, PROJECTED_COLOUR = "#b3372f", "#c77b1c"


@dataclass(frozen=True)
class MemoryOverTime:
    """Samples as (second, bytes); bytes that were projected, allowed and measured at most, which may have been between
    two samples; what began when, as (second, name)."""

    samples: Sequence[tuple[float, int]]
    projected: int
    limit: int
    peak: int = 0
    marks: Sequence[tuple[float, str]] = ()
    title: str = "resident memory"


def memory_chart(told: MemoryOverTime, width: int = 960, height: int = 320) -> str:
    """The picture, for pages and as a file."""
    plot = _Plot(told, width, height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(told.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *plot.area(),
        *plot.axes(),
        *plot.passes(),
        *plot.curve(),
        *plot.lines(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Plot:
    """Where seconds and bytes lie in the picture."""

    def __init__(self, told: MemoryOverTime, width: int, height: int) -> None:
        self.told, self.width, self.height = told, width, height
        seconds = [second for second, _ in told.samples] or [0.0]
        self.peak = max(told.peak, *(nbytes for _, nbytes in told.samples), 0)
        self.began, self.lasted = seconds[0], (seconds[-1] - seconds[0]) or 1.0
        self.most = ABOVE * max(1, told.limit, told.projected, self.peak)

    def x(self, second: float) -> float:
        return round(LEFT + (self.width - LEFT - RIGHT) * (second - self.began) / self.lasted, 1)

    def y(self, nbytes: float) -> float:
        return round(self.height - BOTTOM - (self.height - TOP - BOTTOM) * nbytes / self.most, 1)

    def text(self, x: float, y: float, said: str, colour: str = SOFT, anchor: str = "start") -> str:
        return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{escape(said)}</text>'

    def axes(self) -> list[str]:
        """Ticks with their numbers, and lines across the plot."""
        right, base = self.width - RIGHT, self.y(0)
        found = [self.text(LEFT, 16, self.told.title, INK)]
        for nbytes in _ticks(self.most, 2):
            at = self.y(nbytes)
            found.append(f'<path d="M{LEFT} {at}H{right}" stroke="{INK}" stroke-opacity="0.1"/>')
            found.append(self.text(LEFT - 8, at + 4, size_text(nbytes).replace(".0 ", " "), anchor="end"))
        for second in _ticks(self.lasted, 10):
            at = self.x(self.began + second)
            found.append(f'<path d="M{at} {base}v4" stroke="{SOFT}"/>')
            found.append(self.text(at, base + 18, f"{second:g} s", anchor="middle"))
        return found

    def passes(self) -> list[str]:
        """A line where each begins, its name beside it: at the foot where the one before is near."""
        found, ends = [], dict[int, float]()  # of the names, by their row: above, at the foot, above that
        for second, name in self.told.marks:
            at = self.x(max(second, self.began))
            row = next(k for k in range(len(ends) + 1) if ends.get(k, 0.0) < at)
            ends[row] = at + 12 + LETTER * len(name)
            found.append(f'<path d="M{at} {TOP - 8}V{self.y(0)}" stroke="{SOFT}" stroke-dasharray="2 3"/>')
            found.append(self.text(at + 4, self.y(0) - 6 - ASIDE * (row - 1) if row else TOP, name))
        return found

    def points(self) -> str:
        """The samples."""
        return " ".join(f"{self.x(second)},{self.y(nbytes)}" for second, nbytes in self.told.samples)

    def area(self) -> list[str]:
        """What is below the memory."""
        if not self.told.samples:
            return []
        first, last = self.x(self.told.samples[0][0]), self.x(self.told.samples[-1][0])
        return [f'<polygon points="{first},{self.y(0)} {self.points()} {last},{self.y(0)}" fill="{AREA}"/>']

    def curve(self) -> list[str]:
        """The memory."""
        return [f'<polyline points="{self.points()}" fill="none" stroke="{CURVE}" stroke-width="1.5"/>']

    def lines(self) -> list[str]:
        """Limit, projection and peak, with their names on the right, which make room for each other."""
        named = [
            (self.told.limit, "allowed", LIMIT_COLOUR, "7 4"),
            (self.told.projected, "projected", PROJECTED_COLOUR, "7 4"),
            (self.peak, "measured at most", CURVE, "1 3"),
        ]
        found, above = [], float(-ASIDE)
        for nbytes, name, colour, dashes in sorted(named, key=lambda one: -one[0]):
            at, right = self.y(nbytes), self.width - RIGHT
            above = max(at + 4, above + ASIDE)
            found.append(f'<path d="M{LEFT} {at}H{right}" stroke="{colour}" stroke-dasharray="{dashes}" fill="none"/>')
            found.append(self.text(right + 8, above, f"{name} {size_text(nbytes)}", colour))
        return found


def _ticks(most: float, base: int) -> list[float]:
    """Round numbers up to `most`, about TICKS of them: powers of `base`, of 10 those times 2 and 5 too."""
    step = 1.0 if base == 2 else 0.001
    while most / step > TICKS + 2:
        times = 2.0 if base == 2 or str(step).lstrip("0.")[:1] != "2" else 2.5
        step = round(step * times, 6)
    return [step * k for k in range(int(most / step) + 1)]
