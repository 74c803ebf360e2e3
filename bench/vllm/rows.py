"""Rows of a benchmark: two things that took turns, what they differ by, and whether that is enough.

The same words and the same spread as `make bench` (bench/README.md): medians of
rounds, A/A as the distance of neighbouring rounds of one thing, ratios of
pairs. Here less is better, and a target is met when ours is lower than the
reference by more than the larger A/A spread of the two.
"""
import math
import statistics


def percentile(values, p):
    """The p-th percentile (0..100), linear between the two nearest ranks; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    at = p / 100 * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def spread(samples):
    """A/A: by what share one round typically differs from the next of the same thing; 0 with fewer than two."""
    steps = [abs(math.log(b / a)) for a, b in zip(samples, samples[1:]) if a > 0 and b > 0]
    return math.expm1(statistics.median(steps)) if steps else 0.0


def series(name, unit, samples):
    return {"name": name, "unit": unit, "samples": [round(s, 6) for s in samples],
            "median": statistics.median(samples) if samples else math.nan, "aa": spread(samples)}


def against(row, ours, reference):
    """A row with a target: ours lower than the reference by more than the A/A spread."""
    ratios = [a / b for a, b in zip(ours["samples"], reference["samples"]) if b > 0]
    limit = 1 / (1 + max(ours["aa"], reference["aa"]))
    value = statistics.median(ratios) if ratios else math.nan
    return {"row": row, "ours": ours, "reference": reference, "value": value, "unit": "x", "bound": "below",
            "limit": limit, "verdict": "pass" if value < limit else "short"}


def report(row, ours, reference=None, note=""):
    """A row without a target."""
    return {"row": row, "ours": ours, "reference": reference, "value": None, "unit": "", "bound": None,
            "limit": None, "verdict": "report", "note": note}


def failed(row, why):
    """A row that could not be measured is short and says why."""
    return {"row": row, "ours": None, "reference": None, "value": None, "unit": "x", "bound": "below",
            "limit": None, "verdict": "short", "note": why}


def number(value):
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3f}"


def head():
    return f"{'':<38} {'ours (A/A)':>18} {'reference (A/A)':>18} {'result':>9}  {'want':<12}"


def _shown(one):
    return "-" if one is None else f"{number(one['median'])} {one['unit']} {one['aa'] * 100:3.0f}%"


def line(row):
    value = "-" if row["value"] is None else f"{number(row['value'])} {row['unit']}"
    want = "" if row["limit"] is None else f"below {row['limit']:.2f}"
    note = f"({row['note']}) " if row.get("note") else ""
    return f"{row['row']:<38} {_shown(row['ours']):>18} {_shown(row['reference']):>18} {value:>9}  {want:<12} {note}{row['verdict']}"


def summary(rows):
    wanted = [row for row in rows if row["bound"]]
    return len(wanted), sum(row["verdict"] == "short" for row in wanted)
