"""Plots as inline SVG: bars, curves and points. Knows nothing of what they show; colours are CSS classes of the page.

Marks have the class ``cN`` of their series; titles are what a browser shows when one points at a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

COLOURS = 8
"""The page has so many; then all but the first begin again."""
_WIDTH = 520
_BAR, _GAP, _GROUP_GAP = 12, 3, 15
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 10, 34
_HEIGHT = 250


def bars(groups: Mapping[str, Mapping[str, float]], series: Sequence[str], mark: float | None = None) -> Markup:
    """Horizontal bars: ``groups[label][name]``, coloured by the name's place in ``series``; a line at ``mark``."""
    left = min(max((len(label) for label in groups), default=0), 24) * 7 + 14
    most = max([value for group in groups.values() for value in group.values()] + [mark or 0.0]) or 1.0
    scale = (_WIDTH - left - 46) / most
    parts, y = [], 6
    for label, group in groups.items():
        height = len(group) * (_BAR + _GAP) - _GAP
        parts.append(_text(left - 8, y + height / 2 + 4, label, "end"))
        for name, value in group.items():
            title = f"{label}, {name}: {value:.3f}" if name != label else f"{name}: {value:.3f}"
            parts.append(_rect(colour(series.index(name)), left, y, max(value * scale, 1), title))
            parts.append(_text(left + value * scale + 5, y + _BAR - 2, f"{value:.2f}", "start", "value"))
            y += _BAR + _GAP
        y += _GROUP_GAP - _GAP
    if mark is not None:
        parts.insert(0, _line(left + mark * scale, 0, left + mark * scale, y - 6, "mark"))
    return _svg(parts, y, "bars")


def curves(series: Mapping[str, Sequence[float]], x_title: str, y_title: str) -> Markup:
    """One line for each name; x counts from 1, y are shares."""
    longest = max([len(values) for values in series.values()] + [2])
    top = _ceiling(max((max(values, default=0) for values in series.values()), default=0))
    x_of, y_of = _Scale(1, longest, _LEFT, _WIDTH - _RIGHT), _Scale(0, top, _HEIGHT - _BOTTOM, _TOP)
    ticks = range(1, longest + 1, -(-longest // 12))
    parts = _axes(x_title, y_title, [(x_of(x), str(x)) for x in ticks], top)
    for index, (name, values) in enumerate(series.items()):
        points = [(x_of(place), y_of(share)) for place, share in enumerate(values, 1)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(Markup('<polyline class="c{}" points="{}"/>').format(colour(index), line))
        for (x, y), (place, share) in zip(points, enumerate(values, 1), strict=True):
            parts.append(_dot(index, x, y, 3, f"{name}, {place}: {share:.3f}"))
    return _svg(parts, _HEIGHT, "curves")


def calibration(series: Mapping[str, Sequence[tuple[float, float, int]]]) -> Markup:
    """(predicted, observed, samples) of each name as points, larger for more samples; the diagonal is right."""
    x_of, y_of = _Scale(0, 1, _LEFT, _WIDTH - _RIGHT), _Scale(0, 1, _HEIGHT - _BOTTOM, _TOP)
    parts = _axes("predicted", "accepted", [(x_of(x), f"{x:.0%}") for x in _quarters(1.0)], 1.0)
    parts.append(_line(x_of(0), y_of(0), x_of(1), y_of(1), "mark"))
    most = max((n for buckets in series.values() for _, _, n in buckets), default=1)
    for index, (name, buckets) in enumerate(series.items()):
        line = " ".join(f"{x_of(p):.1f},{y_of(o):.1f}" for p, o, _ in buckets)
        parts.append(Markup('<polyline class="c{} faint" points="{}"/>').format(colour(index), line))
        for predicted, observed, samples in buckets:
            title = f"{name}: predicted {predicted:.3f}, accepted {observed:.3f}, {samples} drafts"
            radius = 2.5 + 7 * (samples / most) ** 0.5
            parts.append(_dot(index, x_of(predicted), y_of(observed), radius, title))
    return _svg(parts, _HEIGHT, "points")


class _Scale:
    """From values ``low``..``high`` to places on the page."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._start = low, start
        self._step = (end - start) / (high - low)

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._step


def colour(series: int) -> int:
    """The number of the class of a series; 0, a grey, is only the first's."""
    return 1 + (series - 1) % (COLOURS - 1) if series else 0


def _ceiling(value: float) -> float:
    """The end of an axis that ``value`` fits on."""
    return next((end for end in (0.1, 0.2, 0.4, 0.6, 0.8) if value <= end), 1.0)


def _quarters(top: float) -> list[float]:
    return [top * quarter / 4 for quarter in range(5)]


def _axes(x_title: str, y_title: str, ticks: Sequence[tuple[float, str]], top: float) -> list[Markup]:
    """Lines and labels; y goes from 0 to ``top``, as shares."""
    bottom, parts = _HEIGHT - _BOTTOM, []
    for share in _quarters(top):
        y = _Scale(0, top, bottom, _TOP)(share)
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 7, y + 4, f"{100 * share:g}%", "end"))
    parts += [_text(x, bottom + 16, label, "middle") for x, label in ticks]
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 3, x_title, "end", "soft"))
    parts.append(_text(_LEFT + 5, _TOP + 13, y_title, "start", "soft"))
    return parts


def _svg(parts: Sequence[Markup], height: float, kind: str) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {:.0f}" role="img">{}</svg>').format(
        kind, _WIDTH, height, Markup("").join(parts)
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(kind, x, y, anchor, text)


def _rect(number: int, x: float, y: float, width: float, title: str) -> Markup:
    return Markup(
        '<rect class="c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="2"><title>{}</title></rect>'
    ).format(number, x, y, width, _BAR, title)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(kind, x1, y1, x2, y2)


def _dot(series: int, x: float, y: float, radius: float, title: str) -> Markup:
    return Markup('<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>').format(
        colour(series), x, y, radius, title
    )
