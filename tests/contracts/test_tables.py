"""The tables of the vocabulary agree with each other and with the values that the design fixes."""

import dataclasses
import itertools
import subprocess
import sys

import pytest

from esper.contracts import (
    ADVANCES_TO,
    CHOICES,
    HEADS_OF,
    LEGAL_IN,
    RULES,
    Action,
    AlphaCurve,
    AlphaSpeed,
    AlphaTarget,
    Check,
    Gate,
    Head,
    InvalidAction,
    InvalidSnapshot,
    Op,
    Operator,
    SlotSnapshot,
    Stage,
    Style,
    Tempo,
    Topology,
    Verdict,
)


def test_op_to_heads_table_is_that_of_the_ledger():
    """R0-A1, R0-P1, R0-X1, C-contracts, C-ops: one table, every op a row of it."""
    users = {head: {op for op in Op if head in HEADS_OF[op]} for head in Head}
    assert set(HEADS_OF) == set(Op)
    assert users == {
        Head.OP: set(Op),
        Head.SLOT: set(Op) - {Op.WAIT},
        Head.BLUEPRINT: {Op.GERMINATE},
        Head.TEMPO: {Op.GERMINATE},
        Head.STYLE: {Op.GERMINATE, Op.SET_ALPHA_TARGET},
        Head.ALPHA_TARGET: {Op.GERMINATE, Op.SET_ALPHA_TARGET},
        Head.ALPHA_SPEED: {Op.SET_ALPHA_TARGET, Op.PRUNE},
        Head.ALPHA_CURVE: {Op.SET_ALPHA_TARGET, Op.PRUNE},
    }


def test_values_of_the_heads_are_those_of_the_design():
    assert [int(tempo) for tempo in Tempo] == [3, 5, 8]
    assert [float(target) for target in AlphaTarget] == [0.5, 0.7, 1.0]
    assert [int(speed) for speed in AlphaSpeed] == [0, 3, 5, 8]
    assert [curve.steepness for curve in AlphaCurve if curve.value[0] == "sigmoid"] == [6.0, 12.0, 24.0]
    assert [style.operator for style in Style] == [Operator.ADD, Operator.MULTIPLY, Operator.ADD, Operator.GATE]
    assert [len(values) for values in CHOICES.values()] == [6, 4, 3, 3, 4, 5]


def test_heads_have_one_fixed_order_with_op_first_and_all_zeros_waits():
    """C-heads."""
    assert next(iter(Head)) is Head.OP
    assert CHOICES[Head.OP][0] is Op.WAIT


def test_every_stage_has_a_rule_and_fossils_are_final():
    assert set(RULES) == set(Stage)
    assert RULES[Stage.FOSSILIZED].may_become == frozenset()


LEGAL_PAIRS = {
    ("DORMANT", "GERMINATED"),
    ("GERMINATED", "TRAINING"),
    ("TRAINING", "BLENDING"),
    ("BLENDING", "HOLDING"),
    ("HOLDING", "FOSSILIZED"),
    ("HOLDING", "BLENDING"),
    *((middle, "PRUNED") for middle in ("GERMINATED", "TRAINING", "BLENDING", "HOLDING")),
    ("PRUNED", "EMBARGOED"),
    ("EMBARGOED", "RESETTING"),
    ("RESETTING", "DORMANT"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Stage, Stage)), ids=lambda stage: stage.name)
def test_transition_is_legal_exactly_if_the_architecture_draws_it(before, after):
    assert (after in RULES[before].may_become) == ((before.name, after.name) in LEGAL_PAIRS)


def test_what_blends_trains_and_what_trains_is_present():
    for rule in RULES.values():
        assert rule.holds_seed or not rule.trains
        assert rule.trains or not rule.blends
        assert not (rule.cools and rule.holds_seed)


def test_ops_are_legal_only_where_the_transition_table_leads_on():
    assert set(LEGAL_IN) == set(Op)
    for stage, after in ADVANCES_TO.items():
        assert after in RULES[stage].may_become
    assert LEGAL_IN[Op.ADVANCE] == set(ADVANCES_TO)
    assert LEGAL_IN[Op.PRUNE] == {stage for stage in Stage if Stage.PRUNED in RULES[stage].may_become}
    assert LEGAL_IN[Op.FOSSILIZE] == {stage for stage in Stage if Stage.FOSSILIZED in RULES[stage].may_become}
    assert LEGAL_IN[Op.GERMINATE] == {stage for stage in Stage if Stage.GERMINATED in RULES[stage].may_become}


def test_every_entered_stage_with_a_gate_is_named_by_that_gate():
    assert {gate.name: gate.value for gate in Gate} == {
        "G0": Stage.GERMINATED,
        "G1": Stage.TRAINING,
        "G2": Stage.BLENDING,
        "G3": Stage.HOLDING,
        "G5": Stage.FOSSILIZED,
    }


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.WAIT])
def test_action_without_its_slot_is_refused(op):
    with pytest.raises(InvalidAction, match=f"{op.name} needs a slot"):
        Action(op, blueprint="norm")


def test_germination_without_a_blueprint_is_refused():
    with pytest.raises(InvalidAction, match="GERMINATE needs a blueprint"):
        Action(Op.GERMINATE, "stem")


def test_verdict_gives_the_facts_that_decided():
    yes, no = Check("old enough", True), Check("no gradient", False)
    assert bool(Verdict((yes,)))
    assert Verdict((yes,)).reasons == ("old enough",)
    assert not Verdict((yes, no))
    assert Verdict((yes, no)).reasons == ("no gradient",)


def test_contribution_at_alpha_zero_cannot_be_stated():
    """R4-M18: not measured, distinct from zero."""
    site = {"slot": "stem", "topology": Topology.CNN, "channels": 8, "position": 0, "blueprints": ("norm",)}
    assert SlotSnapshot(**site).contribution is None
    assert SlotSnapshot(**site, alpha=0.5, contribution=0.0).contribution == 0.0
    with pytest.raises(InvalidSnapshot, match="not measured"):
        SlotSnapshot(**site, alpha=0.0, contribution=0.0)


def test_snapshots_are_frozen_and_name_real_types():
    """R0-C1, R0-C2: no `Any` in what packages hand each other; defaults are stated."""
    snapshot = SlotSnapshot("stem", Topology.CNN, 8, 0, ("norm",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.alpha = 1.0  # type: ignore[misc]
    for field in dataclasses.fields(SlotSnapshot):
        assert "Any" not in str(field.type), field.name


def test_contracts_need_the_standard_library_only():
    script = "import sys, esper.contracts; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
