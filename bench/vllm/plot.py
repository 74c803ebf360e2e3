"""A drawing of serving results: latency over request rate, as SVG without any library."""

WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 260, 60, 40, 90
COLOURS = ("#1764ab", "#d2691e", "#3a7d44", "#7b4ea3")


def _nice(top):
    """The round number at or above top that an axis ends with."""
    scale = 1
    while top / scale > 10:
        scale *= 10
    while top / scale <= 1:
        scale /= 10
    return next(step for step in (2, 4, 5, 8, 10) if step >= top / scale) * scale


def _panel(x, title, lines, rates):
    """lines: [(colour, dash, [milliseconds for each rate])]"""
    top = _nice(max(value for _, _, values in lines for value in values))
    wide, out = max(rates), [f'<text x="{x + WIDTH / 2}" y="{TOP - 14}" text-anchor="middle">{title}</text>']

    def at(rate, value):
        return f"{x + rate / wide * WIDTH:.1f},{TOP + HEIGHT - value / top * HEIGHT:.1f}"

    for i in range(5):
        y = TOP + HEIGHT - i / 4 * HEIGHT
        out.append(f'<path d="M{x},{y:.1f} h{WIDTH}" stroke="#ddd"/>'
                   f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{top * i / 4:g}</text>')
    for rate in rates:
        out.append(f'<text x="{x + rate / wide * WIDTH:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{rate:g}</text>')
    for colour, dash, values in lines:
        points = [at(rate, value) for rate, value in zip(rates, values)]
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dash}"/>')
        out += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{colour}"/>' for p in points]
    out.append(f'<text x="{x + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">requests per second</text>')
    return out


def draw(results, title):
    """results: {name: [{"rate": r, "ttft": {"p50": ms, "p99": ms}, "itl": {...}}]}, all with the same rates. The SVG's text."""
    rates = [point["rate"] for point in next(iter(results.values()))]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + 2 * WIDTH + GAP + 20}" height="{TOP + HEIGHT + 90}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for index, (what, label) in enumerate((("ttft", "time to first token, ms"), ("itl", "between tokens, ms"))):
        lines = [(COLOURS[i % len(COLOURS)], dash, [point[what][p] for point in points])
                 for i, points in enumerate(results.values()) for p, dash in (("p50", ""), ("p99", "5 4"))]
        out += _panel(LEFT + index * (WIDTH + GAP), label, lines, rates)
    x = LEFT
    for i, name in enumerate(results):
        out.append(f'<rect x="{x}" y="{TOP + HEIGHT + 60}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>'
                   f'<text x="{x + 18}" y="{TOP + HEIGHT + 71}">{name}</text>')
        x += 40 + 7 * len(name)
    out.append(f'<text x="{x}" y="{TOP + HEIGHT + 71}" fill="#555">solid: p50, dashed: p99. {title}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
