"""What the scheduler's side offers of a request that ends or is preempted, and when it takes that back."""

import types

import pytest
from fakes import ends, full, window
from sides import begun, blocks, early, finished, placed, request, scheduler, step
from vllm.v1.request import RequestStatus

from kvpipe import Status, Unavailable
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.meta import end_of, start_of


def prefilled(side, name="p"):
    r = request(100, name)
    r.kv_transfer_params = {"do_remote_decode": True}
    side.add(r)
    side.step(types.SimpleNamespace(num_scheduled_tokens={name: 100}, preempted_req_ids=None))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    return side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))


def test_nothing_is_offered_when_the_session_of_a_rank_is_over(node):
    side = scheduler(node)
    assert prefilled(side)[0] and len(node.offered) == 1
    side.lost()
    assert prefilled(side, "q") == (False, None) and len(node.offered) == 1


def test_what_prefill_offers_makes_room_for_nobody(node):
    """Its decode engine comes for it. Only what is kept for a next turn saves no more than work."""
    side = scheduler(node, decode_offer=60.0, decode_offer_share=0.07)
    assert prefilled(side)[0]
    assert not side.offers.keeps and not side.offers.give_back() and not node.said
    r = request(100, "turn", do_remote_prefill=False)
    r.kv_transfer_params, r.status, r.num_computed_tokens = None, RequestStatus.FINISHED_STOPPED, 100
    side.add(r)
    assert side.finished(r, ([11, 12, 13, 14, 15, 16, 17],))[0], "nor does it count among what is kept"
    assert side.offers.keeps and side.offers.give_back() and node.said == [("withdraw", node.offered[1])]


def test_nothing_is_offered_that_cannot_be_answered(node, monkeypatch):
    side = scheduler(node)
    monkeypatch.setattr("kvpipe.vllm.offers.wire.outgoing", lambda **_: {}["nothing"])
    with pytest.raises(KeyError):
        prefilled(side)
    assert not node.offered and not step(side).sends


def preempted(side):
    """The tag of a request that is offered layer by layer, and what its step is told; that step writes its blocks."""
    r = early(100, "p", key="t", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (tag, running), = side._operations.running.items()
    running.operation._end = ends(tag, Status.CANCELLED, released=False)
    return tag, types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids={"p"})


def test_nobody_waits_for_an_offer_that_has_no_blocks_yet(node):
    """Another connector may load the beginning: vLLM waits for that, and would free the request twice."""
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    assert finished(side, r) == (False, None)
    assert node.said == [("withdraw", "transfer:t p")] and not step(side).sends


def test_workers_keep_what_they_hear_of_an_offer_until_a_step_names_it(node):
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    prefilled(side)
    side.add(r)
    side.allocated(r, None, 0)
    tag = side._operations.last
    prefilled(side, "later")
    assert step(side).last == tag - 1, "ends of tags up to this one, which no step has named, are forgotten"
    finished(side, r)
    prefilled(side, "latest")
    assert step(side).last == side._operations.last


def prefill(name, loaded=0):
    """One whose layers are offered, if nothing speaks against it; another connector loads some of its tokens."""
    r = early(100, name, do_remote_decode=True, do_remote_prefill=False)
    r.prefill_stats = types.SimpleNamespace(num_external_cached_tokens=loaded)
    return r


def test_a_request_that_gets_blocks_twice_is_offered_once(node):
    """As one of which something is loaded: first for that, then for the rest."""
    side, r = scheduler(node, layerwise=True, role="kv_producer"), prefill("p")
    side.add(r)
    for _ in range(2):
        side.allocated(r, blocks(100), 0)
    assert node.offered == ["transfer:t p"]


def test_an_engine_on_several_nodes_offers_no_layers_either(node):
    side, r = placed(scheduler(node, tp=2, layerwise=True, role="kv_producer"), "n", "far"), prefill("p")
    side.add(r)
    side.allocated(r, blocks(100), 0)
    assert not node.offered


def test_layers_are_offered_of_what_is_computed_behind_a_load_of_our_own(node):
    """Who waits for them hears if that load fails."""
    side, r = scheduler(node, layerwise=True, role="kv_producer"), prefill("p", loaded=64)
    side.add(r)
    side.offers.allocated(r, 64)
    assert "p" in side.offers.layered


@pytest.mark.parametrize("beside", [False, True], ids=["in its step", "beside other steps"])
def test_no_layer_is_offered_of_what_another_connector_still_loads(node, beside):
    """If that fails, the step is taken back, and nobody tells who took its layers. The request is offered whole once it is computed."""
    side, r = scheduler(node, layerwise=True, role="kv_producer"), prefill("p", loaded=64)
    side.add(r)
    side.allocated(r, blocks(100), 0)
    assert not node.offered and "p" not in side.offers.layered
    if beside:
        step(side), step(side)
        r.num_computed_tokens = 64
        side.allocated(r, blocks(100), 0)
        assert "p" in side.offers.layered, "it is loaded"
        return
    side.step(types.SimpleNamespace(num_scheduled_tokens={"p": 36}, preempted_req_ids=None))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    waits, params = side.finished(r, blocks(100).get_block_ids())
    assert waits and params["kvpipe"]["key"] == "transfer:t p" and node.offered == ["transfer:t p"]


@pytest.mark.parametrize("preempted", [False, True])
def test_no_layer_is_offered_of_what_begins_while_another_connector_loads(node, preempted):
    """It may have found the blocks that are loaded, also where it begins before the step that loads is over."""
    side = scheduler(node, layerwise=True, role="kv_producer")
    loading = request(100, "another", do_remote_prefill=False)
    loading.num_preemptions = int(preempted)
    loading.prefill_stats = types.SimpleNamespace(num_external_cached_tokens=0 if preempted else 64)
    side.add(loading)
    for name in ("before", "beside", "next", "after"):
        r = prefill(name)
        side.add(r)
        side.allocated(r, blocks(100), 0)
        assert (name in side.offers.layered) == (name in ("before", "after"))
        if name == "before":
            side.allocated(loading, blocks(100), 0)
        else:
            step(side)


def sharing(node, **more):
    """(the scheduler's side, requests by name, which blocks are found no more). Another connector was to load 68 tokens of "loads", from its
    third block on; "finds" has found five blocks of it and goes on by itself, and "apart" has only found what was there before."""
    tables = {"loads": [1, 2, 3, 4, 5, 6, 7], "finds": [1, 2, 3, 4, 5, 16, 17], "apart": [1, 2, 23, 24, 25, 26, 27]}
    side, gone = scheduler(node, **more), set()
    side.bind(types.SimpleNamespace(get_block_ids=lambda name: (tables[name],), evict_blocks=gone.update, block_pool=None))
    all_of_them = {name: request(100, name, do_remote_prefill=False, do_remote_decode=True) for name in tables}
    for r, computed in zip(all_of_them.values(), (32, 80, 100)):
        side.add(r)
        r.num_computed_tokens = computed
    return side, all_of_them, gone


@pytest.mark.parametrize("flight", [1, 2], ids=["", "with asynchronous scheduling"])
def test_who_has_found_blocks_that_another_connector_did_not_load_is_not_offered(node, flight):
    """vLLM believes what it computes on them, in a step that is under way, or before they are all computed. Who was to load them computes them
    now."""
    side, requests, _ = sharing(node, flight=flight)
    side.ended((), {3, 4, 50}, ())
    for name, r in requests.items():
        side.step(types.SimpleNamespace(num_scheduled_tokens={name: 68}, preempted_req_ids=None))
        r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
        waits, params = side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))
        assert waits == (params is not None) == (name != "finds"), name
    assert not side.offers.spoiled._from, "the next request of that name is another"


def test_nor_does_any_other_find_them_or_what_is_computed_on_them(node):
    side, requests, gone = sharing(node)
    side.ended((), {4, 50}, ())
    assert gone == {50, 4, 5, 6, 7, 16, 17}
    gone.clear()
    step(side)
    assert gone == {4, 5, 16, 17}, "of the one that computes on them: vLLM has it found as it is computed"
    gone.clear()
    finished(side, requests["finds"])
    assert gone == {4, 5, 16, 17}, "also what it computed last"
    gone.clear()
    step(side)
    assert not gone


def test_nor_what_one_has_computed_on_them_that_has_lost_it_since(node):
    """vLLM may have had it found after the step before. Whoever has the blocks in the step after that has filled them."""
    side, requests, gone = sharing(node, flight=2)
    side.ended((), {4, 50}, ())
    step(side)
    tables = side.offers.spoiled._tables
    side.offers.spoiled._tables = lambda name: ([],) if name == "finds" else tables(name)
    for lost in ({4, 5, 16, 17}, set()):
        gone.clear()
        step(side)
        assert gone == lost


@pytest.mark.parametrize("table, believed", [([1, 2, 23, 24, 5], False), ([1, 2, 0, 34, 35], True)])
def test_nor_is_one_offered_that_finds_what_was_computed_on_them_in_the_step_before(node, table, believed):
    """With asynchronous scheduling vLLM has blocks found once they are computed, which is between two steps. Nobody computes block 0."""
    side, requests, _ = sharing(node)
    tables = side.offers.spoiled._tables
    side.offers.spoiled._tables = lambda name: ([1, 2, 3, 4, 5, 0, 17],) if name == "finds" else (table,) if name == "next" else tables(name)
    side.ended((), {3}, ())
    r = request(100, "next", do_remote_prefill=False, do_remote_decode=True)
    side.add(r)
    side.allocated(r, blocks(100), 0)
    side.step(scheduled("next"))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    assert side.finished(r, (table,))[0] == believed


def test_no_layer_is_offered_of_one_that_finds_it_either(node):
    """Its taker would have them long before it is known that the request is not offered."""
    side, _, _ = sharing(node, layerwise=True, role="kv_producer")
    tables = side.offers.spoiled._tables
    side.offers.spoiled._tables = lambda name: ([1, 2, 3, 4, 5, 16, 99],) if name == "next" else tables(name)
    side.ended((), {3}, ())
    for found, name in enumerate(("apart", "next")):
        r = prefill(name)
        side.add(r)
        side.allocated(r, blocks(100), 0)
        assert (name in side.offers.layered) == (not found)


@pytest.mark.parametrize("then", ["aborted", "preempted", "begun again"])
def test_what_a_request_has_lost_before_it_is_known_what_has_failed_is_found_by_nobody_either(node, then):
    """With asynchronous scheduling. Its blocks are found by who has the beginning from elsewhere, and may be found already."""
    side, requests, gone = sharing(node, flight=2)
    tables = {"another": [1, 30, 31, 8, 0, 35], "lost": [1, 2, 3, 7]}
    side.offers.spoiled._tables = lambda name: (tables.get(name, []),)
    lost, another = (request(100, name, do_remote_prefill=False, do_remote_decode=True) for name in ("lost", "another"))
    side.add(lost)
    side.allocated(lost, blocks(100), 0)
    step(side)
    tables["lost"] += [8, 0, 9]
    step(side)
    if then == "aborted":
        finished(side, lost)
    tables["lost"] = [1, 2, 40] if then == "begun again" else []
    if then == "begun again":
        side.allocated(lost, blocks(100), 0)
    side.add(another)
    another.num_computed_tokens = 96
    side.ended((), {2}, ())
    assert gone == {2, 3, 7, 8, 9, 35} | ({40} if then == "begun again" else set())
    side.step(scheduled("another"))
    another.status, another.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    assert side.finished(another, (tables["another"],)) == (False, None)


@pytest.mark.parametrize("flight, known", [(1, 1), (2, 2)])
def test_what_a_request_has_is_kept_no_longer_than_until_its_first_step_is_over(node, flight, known):
    side, requests, _ = sharing(node, flight=flight)
    side.allocated(requests["loads"], blocks(100), 0)
    for young in range(known, 0, -1):
        step(side)
        assert [(y.steps, y.table) for y in side.offers.spoiled._young] == [(young, [1, 2, 3, 4, 5, 6, 7])]
    step(side)
    assert not side.offers.spoiled._young


def test_of_two_failures_the_one_nearer_to_the_beginning_counts(node):
    side, _, gone = sharing(node)
    for bad in ({4}, {3}, {5}):
        side.ended((), bad, ())
    gone.clear()
    step(side)
    assert gone == {3, 4, 5, 16, 17}


@pytest.mark.parametrize("late", [0, 2])
def test_blocks_of_a_preempted_request_are_written_once_nothing_reads_them(node, late):
    side = scheduler(node, layerwise=True)
    tag, output = preempted(side)
    heard = iter([*[[]] * late, [side._operations.running[tag].operation._end], [ends(tag, Status.RELEASED)]])
    node.poll = lambda: next(heard, [])
    side.step(output)
    assert node.said == [("withdraw", "transfer:t")] and list(heard) == [] and tag not in side._operations.running


def test_nor_is_one_promised_that_was_preempted_since(node):
    side = scheduler(node, layerwise=True)
    tag, _ = preempted(side)
    r = side._at_once.requests["p"]
    r.num_preemptions, r.status, r.num_computed_tokens = 1, RequestStatus.FINISHED_STOPPED, 100
    node.coming = [ends(tag, Status.CANCELLED)]
    assert side.finished(r, ([],)) == (False, None) and not side._operations.running


def test_so_they_are_though_something_else_fails(node, monkeypatch):
    side = scheduler(node, layerwise=True)
    tag, output = preempted(side)
    node.coming = [ends(tag, Status.CANCELLED)]
    monkeypatch.setattr(side._operations, "collect", {}.__getitem__)
    side.step(output)
    assert node.said == [("withdraw", "transfer:t")] and tag not in side._operations.running


@pytest.mark.parametrize("share, kept", [(0.09, True), (0.08, False)])
def test_what_windows_have_left_is_not_counted_as_kept(node, share, kept):
    """Of a hundred blocks nine are held, at the places of fourteen."""
    side, r = scheduler(node, specs=[full(), window(20)], decode_offer_share=share), request(100)
    r.kv_transfer_params = {"kvpipe": {"v": 1, "keep": 60}}
    side.add(r)
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, 100
    assert side.finished(r, (list(range(1, 8)), [0] * 5 + [8, 9]))[0] == kept
    assert [running.blocks for running in side._operations.running.values()] == [9] * kept


def scheduled(*names):
    return types.SimpleNamespace(num_scheduled_tokens=dict.fromkeys(names, 50), preempted_req_ids=None)


def test_a_prefill_is_read_once_the_last_step_that_computed_it_is_saved(node):
    """On every rank: the engine hears of the end from one of them."""
    side, r = scheduler(node, lease=30.0), request(100, "p")
    r.kv_transfer_params = {"do_remote_decode": True}
    side.add(r)
    told = [side.step(scheduled(*names)) for names in (["p"], ["p", "other"], ["other"])]
    assert [step.offered for step in told] == [True, True, False]
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    assert side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))[0]
    assert [(offer["after"], offer["tokens"], offer["lease"]) for offer in node.offers] == [(end_of(told[1].number), 100, 30.0)]


def test_so_is_what_is_kept_once_the_last_step_that_went_out_is(node):
    side, r = scheduler(node, decode_offer_share=1.0, lease=30.0), request(100)
    r.kv_transfer_params = {"kvpipe": {"v": 1, "keep": 60}}
    side.add(r)
    for _ in range(3):
        side.step(scheduled("r"))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, 99
    assert side.finished(r, (list(range(1, 8)),))[0]
    assert [(offer["after"], offer["tokens"], offer["lease"]) for offer in node.offers] == [(end_of(3), 99, 60.0)]


@pytest.mark.parametrize("params", [{"do_remote_decode": True}, {"kvpipe": {"v": 1, "keep": 60}}], ids=["prefill", "kept"])
@pytest.mark.parametrize("status", [status for status in RequestStatus if RequestStatus.is_finished(status)], ids=lambda status: status.name)
def test_only_who_gets_an_answer_will_come_for_its_kv(node, params, status):
    side, r = scheduler(node, decode_offer_share=1.0), request(100)
    r.kv_transfer_params = params
    side.add(r)
    side.step(scheduled("r"))
    r.status, r.num_computed_tokens = status, 50
    answered = status in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
    assert (side.finished(r, ([1, 2, 3, 4, 5, 6, 7],)) == (False, None)) == (not answered) and len(node.offers) == answered


@pytest.mark.parametrize("advertise, host, port", [("", "10.0.0.1", 7650), ("pod:80", "pod", 80)])
def test_the_address_that_goes_out_is_the_daemons_unless_one_is_set(node, advertise, host, port):
    node.advertise = "10.0.0.1:7650"
    _, params = prefilled(scheduler(node, advertise=advertise))
    assert (params["remote_host"], params["remote_port"]) == (host, port)


def test_nothing_is_kept_that_nobody_has_asked_for(node):
    side, r = scheduler(node, decode_offer_share=1.0), request(100, do_remote_prefill=False)
    side.add(r)
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, 100
    assert side.finished(r, (list(range(1, 8)),)) == (False, None) and not node.offers


def test_prefill_hands_over_no_more_than_the_prompt(node):
    """It may have been asked for some tokens of the answer, too."""
    side, r = scheduler(node), request(100)
    r.kv_transfer_params = {"do_remote_decode": True}
    side.add(r)
    side.step(scheduled("r"))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 103
    assert side.finished(r, (list(range(1, 8)),))[1]["kvpipe"]["tokens"] == 100 and node.offers[0]["tokens"] == 100


@pytest.mark.parametrize("computed, tokens", [(60, 60), (99, 99), (101, 99)])
def test_the_last_token_of_an_answer_is_not_kept(node, computed, tokens):
    """It was sampled; with asynchronous scheduling the engine counts it, and one more, as computed."""
    side, r = scheduler(node, decode_offer_share=1.0), request(100)
    r.kv_transfer_params = {"kvpipe": {"v": 1, "keep": 60}}
    side.add(r)
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, computed
    waits, params = side.finished(r, (list(range(1, 8)),))
    assert waits and params["kvpipe"]["tokens"] == tokens and "keep" not in params["kvpipe"]


def test_a_reset_cache_offers_nothing_of_before(node):
    side = scheduler(node)
    prefilled(side)
    begun(side, request(100))
    node.said.clear()
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._scheduler = side
    assert connector.reset_cache(), "vLLM says that its own was not reset, where a connector's was not"
    assert node.said == [("withdraw", node.offered[0])], "what it loads is not its own, and goes on"


@pytest.mark.parametrize("tokens, status, promised", [
    (100, RequestStatus.FINISHED_STOPPED, True),
    (96, RequestStatus.FINISHED_STOPPED, False),
    (100, RequestStatus.FINISHED_ABORTED, False),
], ids=["", "its daemon has refused the rest", "its client is gone"])
def test_only_what_has_grown_to_the_whole_prompt_is_promised(node, tokens, status, promised):
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (running,) = side._operations.running.values()
    running.operation._tokens, running.operation.seal = tokens, lambda timeout: node.said.append(("seal", "transfer:t p"))
    r.status, r.num_computed_tokens = status, 100
    waits, params = side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))
    assert waits and bool(params) == promised and node.said == [("seal" if promised else "withdraw", "transfer:t p")]


@pytest.mark.parametrize("found", [0, 48])
def test_who_is_computed_again_is_offered_whole(node, found):
    """Its taker has heard the end of what grew before."""
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    r.num_preemptions, r.num_computed_tokens = 1, found
    side.allocated(r, None, 0)
    assert not node.offered
    side.step(scheduled("p"))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, 100
    assert side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))[0] and node.offered == ["transfer:t p"]


def test_what_a_step_computes_is_offered_as_its_layers_are_written(node):
    """From the block on in which the offer ended, and without waiting for the daemon."""
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (running,), grown = side._operations.running.values(), []

    def extend(blocks, tokens, after, **options):
        running.operation._tokens = tokens
        grown.append((blocks, tokens, after, options))

    running.operation.extend, side._tables = extend, lambda request: ([1, 2, 3, 4, 5, 6, 7],)
    steps = []
    for r.num_computed_tokens in (0, 50):
        steps.append(side.step(scheduled("p")).number)
    how = {"layered": True, "timeout": 0}
    assert grown == [([[1, 2, 3]], 48, start_of(steps[0]), how), ([[4, 5, 6, 7]], 100, start_of(steps[1]), how)]


def test_one_that_cannot_grow_any_more_keeps_no_other_from_it(node):
    side, tried = scheduler(node, layerwise=True), []
    side._tables = lambda request: ([1, 2, 3, 4, 5, 6, 7],)
    for name in "pq":
        r = early(100, name, do_remote_decode=True, do_remote_prefill=False)
        side.add(r)
        side.allocated(r, None, 0)

    def extend(*_, **__):
        tried.append(True)
        raise Unavailable("the daemon has no room")

    for running in side._operations.running.values():
        running.operation.extend = extend
    assert side.step(scheduled("p", "q")).offered and len(tried) == 2


def test_what_a_reset_has_withdrawn_grows_no_more_and_is_not_promised(node):
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (running,), grown = side._operations.running.values(), []
    running.operation.extend = lambda blocks, tokens, *_, **__: grown.append(tokens)
    side._tables, r.num_computed_tokens = lambda request: ([1, 2, 3, 4, 5, 6, 7],), 0
    side.step(scheduled("p"))
    side.offers.reset()
    r.num_computed_tokens = 50
    side.step(scheduled("p"))
    assert grown == [48]
    running.operation._tokens = r.num_computed_tokens = 100
    r.status = RequestStatus.FINISHED_STOPPED
    assert side.finished(r, ([1, 2, 3, 4, 5, 6, 7],)) == (True, None)


def test_blocks_that_do_not_come_back_are_waited_for_a_moment(node, clock):
    """A step that waits for them computes nothing, and a daemon may stand still."""
    offers, running = (side := scheduler(node)).offers, side._operations

    def keep():
        running.keep(running.tag(), "r", node.offer("k", []), blocks=3)

    keep()
    assert offers.give_back() and node.said == [("withdraw", "k")]
    clock[0] += 0.9
    assert offers.give_back()
    clock[0] += 0.2
    assert not offers.give_back()
    keep()
    assert offers.give_back(), "the next ones are waited for likewise"
    step(side)
    clock[0] += 1.1
    assert not offers.give_back(), "no longer for a step between"
    running.running.clear()
    step(side)
    assert not offers._asked_back and not offers.give_back()
