"""A worker's KV memory: where the engine gets it from, and how KV lies there."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from .. import AdoptedRegion, Error, Node, Region
from . import layout, packing
from .compat import draft_config, layer_number, logger, of_draft_model, specs_of, transfer_groups
from .params import Settings


def stacked(config: Any, layers: Dict[str, int]) -> List[Set[str]]:
    """The names of each number, in order, by which vLLM says that it is written. It says so of attention, and not of an index beside it,
    which is written before."""
    context = getattr(getattr(config, "compilation_config", None), "static_forward_context", {})
    said = {name for name in layers if name not in context or hasattr(context[name], "impl")}
    names = [{name for name, at in layers.items() if at == number} for number in sorted(set(layers.values()))]
    return [same & said or same for same in names]


class Memory:
    """One rank's KV memory."""

    def __init__(self, node: Node, config: Any, cache: Any, settings: Settings, heads: layout.Heads) -> None:
        self._node, self._config, self._cache, self._settings, self._heads = node, config, cache, settings, heads
        self._regions: List[Union[Region, AdoptedRegion]] = []
        #: layer's name -> its number in the model
        self.layers: Dict[str, int] = {}
        #: stacked() of them
        self.stack: List[Set[str]] = []
        #: how they are packed (packing.found()); None: not known before register()
        self.form: Optional[str] = None

    @contextlib.contextmanager
    def allocating(self) -> Iterator[None]:
        """Makes the engine's one allocation of KV memory come from Node.alloc(), so that nothing is copied or adopted."""
        import torch

        sizes = {int(t.size) for t in self._cache.kv_cache_tensors}
        zeros, mine = torch.zeros, threading.get_ident()

        def ours(*size: Any, **options: Any) -> Any:
            if threading.get_ident() == mine and len(size) == 1 and size[0] in sizes and options.get("dtype") is torch.int8:
                region = self._node.alloc(size[0])
                self._regions.append(region)
                return torch.frombuffer(region, dtype=torch.int8)
            return zeros(*size, **options)

        torch.zeros = ours
        try:
            yield
        finally:
            torch.zeros = zeros

    def register(self, caches: Dict[str, Any]) -> None:
        """Says how the KV lies in the regions; memory that is not in one yet is adopted where it is."""
        layers, specs, own = [], [], int(self._config.model_config.get_total_num_hidden_layers())
        for number, index in enumerate(transfer_groups(self._cache)):
            for name, spec in specs_of(self._cache.kv_cache_groups[index]).items():
                specs.append(spec)
                layers.append(self._layer(name, number, spec, own))
        self.layers = {layer.name: layer.number for layer in layers}
        self.stack = stacked(self._config, self.layers)
        self.form = form = packing.found(self._config, specs)
        views = layout.views(layers, caches, self._cache.num_blocks, self._heads, self._place, form == layout.COLUMNS)
        common, sizes = [spec for layer, spec in zip(layers, specs) if layer.number < own], [layer.block_size for layer in layers]
        self._node.set_layout(views, layout.fingerprint(self._config, common, sizes, form, self._settings.model))
        logger.info("kvpipe: rank %d of %d: %d layers, %d views, %d regions of %d MiB, node %s", self._heads.rank,
                    self._heads.ranks, len(layers), len(views), len(self._regions),
                    sum(region.nbytes for region in self._regions) >> 20, self._node.name)

    def _layer(self, name: str, group: int, spec: Any, own: int) -> layout.Layer:
        """Describes a layer. A draft model's are numbered behind the model's own, as their KV is written later."""
        number, drafts = layer_number(name), of_draft_model(name, own)
        at = number + own if drafts else number
        model = self._config.model_config if at < own else draft_config(self._config) or self._config.model_config
        heads = layout.kv_heads(model, number, spec)
        return layout.Layer(name, at, group, spec.block_size, spec.num_kv_heads, heads, drafts)

    def sleep(self) -> None:
        """The engine is about to give the memory up, and keeps its addresses. Raises Error while a daemon may still use it."""
        for region in self._regions:
            region.invalidate()

    def wake(self) -> None:
        """The memory is there again, with nothing in it. Tries all regions, then raises the last Error: while the daemon is away each
        region raises one, and each is to come back with it."""
        trouble = None
        for region in self._regions:
            try:
                region.revalidate()
            except Error as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _place(self, tensor: Any) -> Tuple[Any, int]:
        address = int(tensor.data_ptr())
        for region in self._regions:
            if region.address <= address < region.address + region.nbytes:
                return region, address - region.address
        import torch

        adopted = self._node.adopt(torch.empty(0, dtype=torch.int8).set_(tensor.untyped_storage()))
        self._regions.append(adopted)
        return adopted, address - adopted.address
