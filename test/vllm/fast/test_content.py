"""The content digest: the same for the same prompt on any instance, another for anything that makes another KV."""

import types

import pytest
import torch
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalFieldElem, MultiModalKwargsItem, MultiModalSharedField, PlaceholderRange

from kvpipe.vllm.compat import content_of
from kvpipe.vllm.requests import digest

TOKENS = 64


def request(ids=range(TOKENS), **more):
    nothing = dict.fromkeys(("lora_request", "cache_salt", "prompt_embeds", "mm_features"))
    return types.SimpleNamespace(all_token_ids=list(ids), **{**nothing, **more})


def image(name, pixels=None, offset=8):
    elem = MultiModalFieldElem(data=torch.full((3, 4), pixels or 0, dtype=torch.bfloat16), field=MultiModalSharedField(batch_size=1))
    return MultiModalFeatureSpec(
        data=None if pixels is None else MultiModalKwargsItem({"pixels": elem}), modality="image", identifier=name, mm_hash=name,
        mm_position=PlaceholderRange(offset=offset, length=16))


def embeds(seed, dtype=torch.bfloat16):
    return torch.rand(TOKENS, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)


def lora(name):
    return types.SimpleNamespace(lora_name=name)


@pytest.mark.parametrize("one, other", [
    ({}, {"ids": [*range(TOKENS - 1), 0]}),
    ({"lora_request": lora("a")}, {"lora_request": lora("b")}),
    ({"lora_request": lora("a")}, {}),
    ({"cache_salt": "a"}, {"cache_salt": "b"}),
    ({"prompt_embeds": embeds(1)}, {"prompt_embeds": embeds(2)}),
    ({"prompt_embeds": embeds(1)}, {"prompt_embeds": torch.cat([embeds(1)[:-1], embeds(2)[-1:]])}),
    ({"prompt_embeds": embeds(1)}, {}),
    ({"mm_features": [image("a")]}, {"mm_features": [image("b")]}),
    ({"mm_features": [image("a")]}, {"mm_features": [image("a", offset=9)]}),
    ({"mm_features": [image("renderer0-mm-5-image-0", 1)]}, {"mm_features": [image("renderer0-mm-5-image-0", 2)]}),
])
def test_another_input_has_another_digest(one, other):
    assert digest(request(**one), TOKENS) != digest(request(**other), TOKENS)


@pytest.mark.parametrize("one, other", [
    ({}, {"ids": [*range(TOKENS), 7, 8]}),
    ({"prompt_embeds": embeds(1)}, {"prompt_embeds": torch.cat([embeds(1), embeds(2)])}),
    ({"mm_features": [image("a")]}, {"mm_features": [image("a", 3)]}),  # its data stays where it is needed
    ({"mm_features": [image("a")]}, {"mm_features": [image("a"), image("b", offset=TOKENS)]}),  # of the next turn
    ({"mm_features": [image("renderer0-mm-5-image-0", 1)]}, {"mm_features": [image("renderer1-mm-9-image-0", 1)]}),
])
def test_what_these_tokens_do_not_depend_on_is_not_in_it(one, other):
    assert digest(request(**one), TOKENS) == digest(request(**other), TOKENS)


def test_an_input_of_which_only_the_name_is_left_has_that_content():
    """Its data is in the cache of a processor."""
    assert content_of(image("renderer0-mm-3-image")) == "renderer0-mm-3-image"


@pytest.mark.parametrize("name, content", [("hashed", "hashed"), (None, "identified")])
def test_an_input_is_known_by_its_hash_or_else_as_vllm_tells_it_from_others(name, content):
    assert content_of(types.SimpleNamespace(mm_hash=name, identifier="identified", data=None)) == content
