"""What routers do with kv_transfer_params, as payloads.json has it: one object for each router.

- ``to_prefill``: what it puts into the prefill request; null: nothing.
- ``to_decode``: the field of the decode request that gets the prefill answer's parameters (``disagg_prefill_resp``: all of
  that answer); null: the router does not look at them, and sends ``made_up``.
- ``rewrites``: what it replaces in them. ``without``: what decode gets when the answer has none. ``next_turn``: what it
  replaces in the decode answer's parameters before it sends them to prefill with the next turn of a conversation.
"""

import json

from places import HERE

CLIENT = {"model": "m", "prompt": "hello", "max_tokens": 16, "stream": True}


class Router:
    def __init__(self, facts):
        self._facts = facts
        self.name, self.turns = facts["router"], "next_turn" in facts

    def prefill_request(self, decoded=None):
        """The body for prefill; decoded: the answer of the conversation's turn before."""
        body = {**CLIENT, "max_tokens": 1, "stream": False}
        before = (decoded or {}).get("kv_transfer_params")
        if before and self.turns:
            body["kv_transfer_params"] = {**before, **self._facts["next_turn"]}
        elif self._facts["to_prefill"] is not None:
            body["kv_transfer_params"] = self._facts["to_prefill"]
        return self._wire(body)

    def decode_request(self, prefilled):
        """The body for decode, from prefill's answer."""
        body, params, field = dict(CLIENT), prefilled.get("kv_transfer_params"), self._facts["to_decode"]
        if field is None:
            body["kv_transfer_params"] = self._facts["made_up"]
        elif field == "disagg_prefill_resp":
            body[field] = prefilled
        elif params:
            body[field] = {**params, **self._facts["rewrites"]}
        elif self._facts["without"] == "null":
            body[field] = None
        elif self._facts["without"] == "to_prefill":
            body[field] = self._facts["to_prefill"]
        return self._wire(body)

    def _wire(self, body):
        return json.loads(json.dumps(body, sort_keys=self._facts.get("sorted", False)))


def load():
    return [Router(facts) for facts in json.loads((HERE / "payloads.json").read_text())]
