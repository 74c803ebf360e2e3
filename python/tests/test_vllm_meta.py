"""What goes to workers with each step."""

import pickle

from kvpipe.vllm.meta import QUIET, Load, Place, Step, end_of, layer_of, start_of


def test_progress_of_a_step_lies_between_its_neighbours():
    assert start_of(7) < layer_of(7, 1) < layer_of(7, 61) < end_of(7) < start_of(8)
    assert layer_of(7, 1 << 20) < end_of(7)


def test_steps_are_plain_values():
    load = Load(3, "r", "k", "n", b"t" * 16, None, b"", [[1, 2]], 0, 64, start_of(4), {1: 1}, 2, 30.0, False)
    step = Step(4, last=3, sends={1: "a"}, recvs={2: "b"}, ended=[(1, True)], loads=[load], cancelled=[2])
    assert pickle.loads(pickle.dumps(step)) == step
    for name in ("sends", "recvs", "ended", "loads", "cancelled"):
        alone = Step(4, **{name: getattr(step, name)})
        assert pickle.loads(pickle.dumps(alone)) == alone
        assert not alone.empty
    assert len(pickle.dumps(Step(4))) < len(pickle.dumps(step)) / 3


def test_a_quiet_step_is_one_object_on_each_side_and_names_nothing():
    assert pickle.loads(pickle.dumps(QUIET)) is QUIET
    assert QUIET.empty
    assert len(pickle.dumps(QUIET)) < 50


def test_steps_share_nothing():
    first, second = Step(1), Step(2)
    first.sends[1] = "a"
    assert not second.sends


def test_places_are_told_apart_by_node():
    assert pickle.loads(pickle.dumps(Place("a"))) == Place("a") != Place("b")
