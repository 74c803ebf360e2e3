"""Counts, for vLLM's log line and its Prometheus metrics. They are kept where a hand-over is heard of once: by the scheduler's side, or,
if that takes no part in a load, by the rank that takes its first part. Loads that a step waits for are counted by all ranks, each of
which knows only how its own part ended."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .. import Completion, Reason, Status
from . import compat

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BYTES = tuple(float(1 << n) for n in range(14, 37, 2))


def _empty() -> Dict[str, Any]:
    return {"load_seconds": [], "load_bytes": [], "failed": {}, "offers": {}}


def _add(to: Dict[str, int], more: Dict[str, int]) -> None:
    for name, n in more.items():
        to[name] = to.get(name, 0) + n


class Counts(compat.Stats):  # type: ignore[misc]
    """``data``: load_seconds and load_bytes, a value for each load that succeeded; failed: reason -> loads; offers: how they
    ended -> offers. Plain values: it goes to the process that logs."""

    def __init__(self, data: Any = None) -> None:
        super().__init__(data=data or _empty())
        self._some = False  # take() is asked in each step
        self._parts: Dict[int, Tuple[float, int, str]] = {}  # tag -> seconds, bytes, why it failed

    def ended(self, load: bool, c: Completion, seconds: float) -> None:
        self._some = True
        if load and c.status == Status.DONE:
            self.data["load_seconds"].append(seconds)
            self.data["load_bytes"].append(c.bytes)
        elif load:
            _add(self.data["failed"], {reason(c): 1})
        else:
            _add(self.data["offers"], {"consumed" if c.status == Status.DONE else reason(c): 1})

    def failed(self, why: str) -> None:
        """A load failed, and no completion says so."""
        self._some = True
        _add(self.data["failed"], {why: 1})

    def refused(self) -> None:
        """A load could not even be asked for."""
        self.failed("refused")

    def part(self, tag: int, seconds: float, size: int, why: str = "") -> None:
        """This rank's part of a load that a step waits for is there, or has failed. All ranks say theirs with that step."""
        self._some = True
        self._parts[tag] = seconds, size, why

    def take(self) -> Optional["Counts"]:
        """The counts since the last call; None: there are none."""
        if not self._some:
            return None
        now = Counts(self.data)
        now._parts = self._parts
        self.reset()
        return now

    def reset(self) -> None:
        self.data, self._some, self._parts = _empty(), False, {}

    def is_empty(self) -> bool:
        return not any(self.data.values()) and not self._parts

    def aggregate(self, other: Any) -> "Counts":
        for name, more in other.data.items():
            if isinstance(more, dict):
                _add(self.data[name], more)
            else:
                self.data[name] = self.data[name] + more
        for tag, (seconds, size, why) in other._parts.items():
            first = self._parts.get(tag, (0.0, 0, ""))
            self._parts[tag] = max(first[0], seconds), first[1] + size, first[2] or why
        return self

    def to_dict(self) -> Dict[str, Any]:
        """What is logged and measured, with the counts of all ranks of the step: a load of which a part failed counts as failed."""
        for seconds, size, why in self._parts.values():
            if why:
                self.failed(why)
            else:
                self.data["load_seconds"].append(seconds)
                self.data["load_bytes"].append(size)
        self._parts = {}
        return self.data

    def reduce(self) -> Dict[str, Any]:
        seconds: List[float] = sorted(self.data["load_seconds"])
        n, total = len(seconds), sum(self.data["load_bytes"])
        return {
            "loads": n,
            "load p50 (ms)": round(seconds[n // 2] * 1e3, 3) if n else 0,
            "load p99 (ms)": round(seconds[min(n - 1, n * 99 // 100)] * 1e3, 3) if n else 0,
            "MB loaded": round(total / 1e6, 3),
            "failed loads": sum(self.data["failed"].values()),
            "offers consumed": self.data["offers"].get("consumed", 0),
            "offers not consumed": sum(n for how, n in self.data["offers"].items() if how != "consumed"),
        }


def reason(c: Completion) -> str:
    why = c.reason or Reason.CANCELLED
    return why.name.lower() if isinstance(why, Reason) else str(why)  # of a newer daemon


class Metrics(compat.PromMetrics):  # type: ignore[misc]
    """vllm:kvpipe_*, by engine."""

    def __init__(self, config: Any, types: Any, labels: Any, engines: Any) -> None:
        super().__init__(config, types, labels, engines)
        self._labels_of = engines
        self._metrics = {
            "load_seconds": self._histogram_cls(name="vllm:kvpipe_load_seconds", labelnames=labels, buckets=_SECONDS,
                                                documentation="Seconds from asking for a prompt's KV until it was in place."),
            "load_bytes": self._histogram_cls(name="vllm:kvpipe_load_bytes", labelnames=labels, buckets=_BYTES,
                                              documentation="Bytes of KV loaded for a prompt, of all ranks."),
            "failed": self._counter_cls(name="vllm:kvpipe_failed_loads", labelnames=[*labels, "reason"],
                                        documentation="Loads that failed, by reason; their prompts were computed, but for those that were "
                                                      "cancelled because the client had gone."),
            "offers": self._counter_cls(name="vllm:kvpipe_offers", labelnames=[*labels, "end"],
                                        documentation="Offers of finished KV, by how they ended."),
        }

    def observe(self, transfer_stats_data: Dict[str, Any], engine_idx: int = 0) -> None:
        labels = self._labels_of[engine_idx]
        for name, values in transfer_stats_data.items():
            metric = self._metrics[name]
            for value in values:
                if isinstance(values, dict):
                    metric.labels(*labels, value).inc(values[value])
                else:
                    metric.labels(*labels).observe(value)
