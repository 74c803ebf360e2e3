"""How KV lies in regions: views and the fingerprint."""

from __future__ import annotations

import collections.abc
import ctypes
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._values import count, integer, one_of, pair, show, text
from .errors import Invalid

if TYPE_CHECKING:
    from .adopted import AdoptedRegion
    from .region import Region


class View:
    """Where one layer's part lies in a region. The element (block b, token slot t, head h) has
    ``content_bytes`` bytes at

        base + b * block_stride + t * strides[0] + (h - first_head) * strides[1]

    bytes from the region's start.

    - ``layer``: the model's own layer number.
    - ``part``: "kv", "k", "v", ...; at most 15 bytes.
    - ``group``: a block id means the same block in all views of a group.
    - ``block_size``: tokens of a block.
    - ``heads``: number of kv heads here, from the model-wide index ``first_head`` on, of ``total_heads`` in
      the model (None: these are all).
    - ``content_bytes``: of one token of one head. With kind "opaque", whose blocks only move whole, of one
      block.
    """

    __slots__ = (
        "region", "base", "layer", "part", "group", "num_blocks", "block_stride", "block_size", "first_head", "heads",
        "total_heads", "strides", "content_bytes", "kind",
    )

    def __init__(
        self,
        region: Union["Region", "AdoptedRegion"],
        base: int,
        *,
        layer: int = 0,
        part: str = "kv",
        group: int = 0,
        num_blocks: int,
        block_stride: int,
        content_bytes: int,
        block_size: int = 0,
        first_head: int = 0,
        heads: int = 1,
        total_heads: Optional[int] = None,
        strides: Optional[Tuple[int, int]] = None,
        kind: str = "paged",
    ) -> None:
        if not isinstance(getattr(region, "id", None), int):
            raise Invalid(f"view: region is {show(region)}: must be what alloc(), register_fd() or adopt() gave")
        one_of("view: kind", kind, _abi.VIEW_KINDS)
        name = text("view: part", part)
        if not name or len(name) > _abi.MAX_PART:
            raise Invalid(f"view: part is {show(part)}: must be 1 to {_abi.MAX_PART} bytes")
        self.region = region
        self.base = integer("view: base", base, 64)
        self.layer = integer("view: layer", layer)
        self.part = part
        self.group = integer("view: group", group)
        self.num_blocks = count("view: num_blocks", num_blocks, 1 << 26, "67,108,864")
        self.block_stride = integer("view: block_stride", block_stride, 64)
        self.block_size = integer("view: block_size", block_size)
        if kind == "paged" and (strides is None or self.block_size == 0):
            raise Invalid("view: a paged view needs block_size and strides=(token, head)")
        self.first_head = integer("view: first_head", first_head)
        self.heads = integer("view: heads", heads)
        self.total_heads = self.first_head + self.heads if total_heads is None else integer(
            "view: total_heads", total_heads)
        token, head = pair("view: strides", (0, 0) if strides is None else strides, 64)
        self.strides = (token, head)
        self.content_bytes = integer("view: content_bytes", content_bytes, 64)
        self.kind = kind

    def __repr__(self) -> str:
        return "View(%s)" % ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)

    def record(self) -> _abi.View:
        """As it crosses to the daemon."""
        return _abi.View(
            region=self.region.id,
            base=self.base,
            num_blocks=self.num_blocks,
            block_stride=self.block_stride,
            token_stride=self.strides[0],
            head_stride=self.strides[1],
            content_bytes=self.content_bytes,
            layer=self.layer,
            group=self.group,
            kind=_abi.VIEW_KINDS[self.kind],
            block_size=self.block_size,
            first_head=self.first_head,
            heads=self.heads,
            total_heads=self.total_heads,
            part=text("view: part", self.part) or b"",
        )


def pack_views(views: Sequence[View]) -> Any:
    if not isinstance(views, collections.abc.Sequence) or isinstance(views, memoryview):
        raise Invalid(f"views is {show(views)}: must be a list of kvpipe.View")
    for i, view in enumerate(views):
        if not isinstance(view, View):
            raise Invalid(f"views[{i}] is {show(view)}: must be a kvpipe.View")
    return (_abi.View * len(views))(*[_again(i, view).record() for i, view in enumerate(views)])


def _again(i: int, view: View) -> View:
    """Makes it again, which checks it: it may have been changed since, and ctypes would cut what does not fit."""
    try:
        return View(**{name: getattr(view, name) for name in View.__slots__})
    except Invalid as error:
        raise Invalid(f"views[{i}]: {str(error)[len('view: '):]}") from None


def check_regions(views: Sequence[View], records: Any, regions: Mapping[int, Any]) -> None:
    """Raises Invalid unless all views lie in the session's own regions; those of other sessions may have the same ids."""
    for i, (view, record) in enumerate(zip(views, records)):
        if regions.get(record.region) is not view.region:
            what = "another node's" if getattr(view.region, "registered", True) else "closed"
            raise Invalid(f"views[{i}]: region is {show(view.region)}, which is {what}: must be what this node's alloc(), register_fd() or "
                          "adopt() gave")


def pack_fingerprint(fields: Optional[Mapping[str, Any]]) -> "ctypes.Array[_abi.Field]":
    """Values may be str, int or bool; both sides must write a field alike."""
    packed = []
    if not isinstance(fields, (collections.abc.Mapping, type(None))):
        raise Invalid(f"fingerprint is {show(fields)}: must be a dict, of a str with a str, an int or a bool for each field")
    for key, value in (fields or {}).items():
        if not isinstance(key, str) or not isinstance(value, (str, int)):
            raise Invalid(f"fingerprint: {show(key)}: {show(value)}: must be a str with a str, an int or a bool")
        try:
            said = str(value)
        except ValueError:
            raise Invalid(f"fingerprint: {show(key)}: an int of too many digits: give a str") from None
        packed.append(_abi.Field(text("fingerprint key", key), text(f"fingerprint {show(key)}", said)))
    return (_abi.Field * len(packed))(*packed)
