"""What is derived from a vLLM request alone: its blocks as lists for the daemon, its key, and what its KV depends on."""

from __future__ import annotations

import array
import hashlib
from typing import Any, List, Sequence

from ..blocks import NO_BLOCK
from .compat import content_of, skipped


class Blocks:
    """Cuts block tables into lists, one for each group that is handed over.

    unit: tokens are handed over in multiples of it: 1, or a block if attention packs its tokens so that none can be named. It is never
    below that of what the workers describe: the end of a list would be between tokens that lie elsewhere.
    specs: of the layers. drafts: tokens of speculative decoding for which vLLM keeps room beside a request that begins."""

    def __init__(self, groups: Sequence[int], sizes: Sequence[int], unit: int, specs: Sequence[Any] = (), drafts: int = 0) -> None:
        self._groups, self._sizes, self.unit, self._specs, self._drafts = tuple(groups), tuple(sizes), unit, tuple(specs), drafts

    def end(self, tokens: int) -> int:
        """Where a list of so many tokens ends: with the last of its units."""
        return -(-tokens // self.unit) * self.unit

    def filled(self, tokens: int) -> int:
        """How many of so many tokens lie in full blocks."""
        return tokens // self.size * self.size

    @property
    def size(self) -> int:
        """Tokens of a block, where there is one group."""
        return max(self._sizes)

    def short(self, tokens: int) -> bool:
        """Whether the last of so many tokens looks at a block that is gone once all are computed, as the next token's window has
        left it. An engine that loads them all computes the last one again, and would need that block."""
        return any(skipped(s, tokens) // s.block_size > skipped(s, tokens - 1) // s.block_size for s in self._specs)

    def needed(self, tokens: int) -> int:
        """How many blocks a request of so many tokens needs to begin, at most."""
        return sum(-(-tokens // size) - (-self._drafts // size) for size in self._sizes)

    def lack(self, free: int, tables: Sequence[Sequence[int]], tokens: int) -> bool:
        """Whether blocks are lacking for a request to run, beyond those that it has or a window has left."""
        return free + sum(len(tables[index]) for index in self._groups if index < len(tables)) < self.needed(tokens)

    def lists(self, tables: Sequence[Sequence[int]], start: int, stop: int) -> List[List[int]]:
        """The blocks of tokens start .. stop - 1. vLLM has block 0 where a sliding window has left a block."""
        out = []
        for index, size in zip(self._groups, self._sizes):
            first, last = start // size, -(-stop // size)
            ids = [i or NO_BLOCK for i in tables[index][first:last]]
            ids.extend([NO_BLOCK] * (last - first - len(ids)))
            out.append(ids)
        return out


def held(tables: Sequence[Sequence[int]]) -> int:
    """How many blocks a request has. vLLM has block 0 where a window has left one."""
    return sum(bool(i) for ids in tables for i in ids)


def delivered(ids: Sequence[Sequence[int]]) -> List[List[int]]:
    """The lists as NIXL's parameters have them: without positions that have no block."""
    return [[i for i in group if i != NO_BLOCK] for group in ids]


def key(engine: str, tag: int, request: str) -> str:
    name = f"{engine}:{tag}:{request}"
    return name if len(name.encode()) <= 256 else hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


def trace(request: Any) -> str:
    """The W3C trace id, if the request is traced; else its own id. Clients choose both, and daemons take 64 printable bytes."""
    fields = (request.trace_headers or {}).get("traceparent", "").split("-")
    name = fields[1] if len(fields) == 4 else request.request_id
    return "".join(filter(str.isprintable, name)).encode(errors="ignore")[:64].decode(errors="ignore")


def digest(request: Any, tokens: int) -> bytes:
    """What the KV of the first ``tokens`` depends on beside the model: both sides must have the same."""
    h = hashlib.blake2b(array.array("i", request.all_token_ids[:tokens]).tobytes(), digest_size=16)
    lora, embeds = request.lora_request, request.prompt_embeds
    inputs = [(content_of(f), f.mm_position.offset) for f in request.mm_features or () if f.mm_position.offset < tokens]
    h.update(repr([lora.lora_name if lora is not None else None, request.cache_salt, inputs]).encode())
    if embeds is not None:  # [token, hidden]; the ids of such tokens are 0
        import torch

        h.update(embeds[:tokens].cpu().contiguous().flatten().view(torch.uint8).numpy())
    return h.digest()
