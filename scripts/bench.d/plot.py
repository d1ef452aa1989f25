"""Draws the costs as SVG."""

from html import escape
from math import log10

WIDTH, HEIGHT = 880, 360
TOP, BOTTOM = 60, 300
COLOURS = {"at once": "#3465a4", "delayed": "#ce7b21"}
NAMES = {"at once": "answers at once", "delayed": "answers after 20±5 ms"}


def text(x, y, content, anchor="middle", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(content)}</text>'


def line(x1, y1, x2, y2, colour="#888", extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {extra}/>'


class Panel:
    """A rectangle with an axis of µs from 0 to the top."""

    def __init__(self, left, right, highest, title):
        self.left, self.right = left, right
        self.step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 1e9) if highest / step <= 7)
        self.highest = highest
        self.parts = [text((left + right) / 2, 24, title, size=14, extra='font-weight="bold"')]
        value = 0.0
        while value <= highest:
            y = self.y(value)
            self.parts += [line(left, y, right, y, "#ddd"), text(left - 6, y + 4, f"{value:g}", "end", 11)]
            value += self.step

    def y(self, value):
        return BOTTOM - (BOTTOM - TOP) * value / self.highest


def costs(figures):
    """Bars: limit, worker and fanout in each setting, with the limit and twice the limit across."""
    settings = list(figures["limit"])
    names = [name for name in ("limit", "worker", "fanout") if name in figures]
    tops = [figures[name][setting]["cpu_us"]["max"] for name in names for setting in settings]
    tops += [2 * figures["limit"][setting]["cpu_us"]["median"] for setting in settings]
    panel = Panel(50, 420, 1.1 * max(tops), "CPU µs a notification")
    width = (panel.right - panel.left) / len(settings)
    bar = width / (len(names) + 1)
    for place, setting in enumerate(settings):
        left = panel.left + place * width
        for index, name in enumerate(names):
            cost = figures[name][setting]["cpu_us"]
            x, y = left + bar * (index + 0.6), panel.y(cost["median"])
            middle = x + bar * 0.4
            panel.parts += [
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar * 0.8:.1f}" height="{BOTTOM - y:.1f}" '
                f'fill="{COLOURS[setting]}" fill-opacity="{0.45 if name == "limit" else 0.9}"/>',
                line(middle, panel.y(cost["min"]), middle, panel.y(cost["max"]), "#222"),
                text(middle, BOTTOM + 16, name),
                text(middle, panel.y(cost["max"]) - 4, f'{cost["median"]:.2f}', size=11),
            ]
        limit = figures["limit"][setting]["cpu_us"]["median"]
        for factor in (1, 2):
            y = panel.y(factor * limit)
            panel.parts += [
                line(left + 4, y, left + width - 4, y, "#a40000", 'stroke-dasharray="5 3"'),
                text(left + width - 4, y - 4, "limit" if factor == 1 else "2 × limit", "end", 10, 'fill="#a40000"'),
            ]
        panel.parts.append(text(left + width / 2, BOTTOM + 36, NAMES[setting], extra=f'fill="{COLOURS[setting]}"'))
    return panel.parts


def backlogs(figures):
    """Lines: cost against backlog, with the goal, a tenth around the middle."""
    scale = {
        int(name.split()[1]): settings
        for name, settings in figures["scale"].items() if name.startswith("backlog")}
    sizes = sorted(scale)
    settings = list(scale[sizes[0]])
    highest = 1.2 * max(scale[size][setting]["cpu_us"]["max"] for size in sizes for setting in settings)
    panel = Panel(500, 860, highest, "CPU µs a notification by backlog")
    first, last = log10(sizes[0]), log10(sizes[-1])

    def x(size):
        return panel.left + 30 + (panel.right - panel.left - 60) * (log10(size) - first) / (last - first)

    for setting in settings:
        points = [(x(size), scale[size][setting]["cpu_us"]) for size in sizes]
        medians = [cost["median"] for _, cost in points]
        middle = (max(medians) + min(medians)) / 2
        upper, lower = panel.y(middle * 1.05), panel.y(middle * 0.95)
        colour = COLOURS[setting]
        track = " ".join(f"{at:.1f},{panel.y(cost['median']):.1f}" for at, cost in points)
        panel.parts += [
            f'<rect x="{panel.left}" y="{upper:.1f}" width="{panel.right - panel.left}" height="{lower - upper:.1f}" '
            f'fill="{colour}" fill-opacity="0.12"/>',
            f'<polyline points="{track}" fill="none" stroke="{colour}" stroke-width="2"/>',
            text(panel.right - 4, panel.y(medians[-1] * 1.08) - 6, NAMES[setting], "end", 11, f'fill="{colour}"'),
        ]
        for at, cost in points:
            panel.parts += [
                line(at, panel.y(cost["min"]), at, panel.y(cost["max"]), colour),
                f'<circle cx="{at:.1f}" cy="{panel.y(cost["median"]):.1f}" r="3.5" fill="{colour}"/>',
            ]
    panel.parts += [text(x(size), BOTTOM + 16, f"{size:,}") for size in sizes]
    panel.parts.append(text((panel.left + panel.right) / 2, BOTTOM + 36, "jobs waiting; the bands are 10 % wide"))
    return panel.parts


def svg(page):
    figures = page["figures"]
    parts = []
    if "limit" in figures:
        parts += costs(figures)
    if "scale" in figures:
        parts += backlogs(figures)
    caption = f"{page['machine']['cpu']}, server: {page['server']}, median, least and most of {page['rounds']} rounds"
    parts.append(text(WIDTH / 2, HEIGHT - 6, caption, size=11, extra='fill="#666"'))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n')
