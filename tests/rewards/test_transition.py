"""A transition is two moments of one body."""

import pytest

from esper.contracts import WAIT
from esper.rewards import Ending, InvalidMoment, Transition
from tests.rewards.cases import slot, snapshot, step, table


def test_only_the_later_moment_can_be_the_end():
    one = step(snapshot(), ending=Ending.TRUNCATED)
    assert not one.start.over
    assert one.end.over


def test_each_moment_has_its_own_table():
    one = step(snapshot(slot("a")), table_before=table(none=0.1), table_after=table(none=0.2))
    assert one.start.table == {frozenset(): 0.1}
    assert one.end.table == {frozenset(): 0.2}


def test_snapshots_of_two_bodies_are_refused():
    with pytest.raises(InvalidMoment, match=r"slots were \['a'\] and are \['b'\]; give two snapshots of one body"):
        Transition(snapshot(slot("a")), snapshot(slot("b")), WAIT, {}, {})
