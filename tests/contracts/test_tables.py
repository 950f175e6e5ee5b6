"""The tables of the vocabulary agree with each other and with the values that the design fixes."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import esper.contracts
from esper.contracts import (
    ADVANCES_TO,
    CHOICES,
    HEADS_OF,
    LEGAL_IN,
    RULES,
    Action,
    AlphaCurve,
    AlphaMode,
    AlphaSpeed,
    AlphaTarget,
    Check,
    Gate,
    Head,
    HostSnapshot,
    InvalidAction,
    InvalidSnapshot,
    Op,
    Operator,
    SlotSnapshot,
    Snapshot,
    Stage,
    Style,
    Tempo,
    Topology,
    Verdict,
)
from esper.controller import Policy
from esper.rl import HeadMetrics, Network, UpdateMetrics


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
    ("GERMINATED", "BLENDING"),
    ("TRAINING", "BLENDING"),
    ("TRAINING", "HOLDING"),
    ("BLENDING", "HOLDING"),
    ("HOLDING", "FOSSILIZED"),
    ("HOLDING", "BLENDING"),
    *((middle, "PRUNED") for middle in ("GERMINATED", "TRAINING", "BLENDING", "HOLDING")),
    ("PRUNED", "EMBARGOED"),
    ("EMBARGOED", "RESETTING"),
    ("RESETTING", "DORMANT"),
}


def test_transition_is_legal_exactly_if_the_docs_draw_it():
    legal = {(before.name, after.name) for before, rule in RULES.items() for after in rule.may_become}
    assert legal == LEGAL_PAIRS


def test_a_slot_that_cools_is_empty():
    for rule in RULES.values():
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


def test_action_without_its_slot_is_refused():
    for op in set(Op) - {Op.WAIT}:
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


@pytest.mark.parametrize("stage", Stage)
def test_fossils_are_delivered_and_held_seeds_that_are_ready(stage):
    site = {"slot": "stem", "topology": Topology.CNN, "channels": 8, "position": 0, "blueprints": ("norm",)}
    slots = [SlotSnapshot(**site, stage=stage)]
    if stage is Stage.HOLDING:
        slots.append(SlotSnapshot(**{**site, "slot": "head"}, stage=stage, ready=True))
    else:
        with pytest.raises(InvalidSnapshot, match=f"is ready in {stage.name}; only held seeds are"):
            SlotSnapshot(**site, stage=stage, ready=True)
    delivered = {Stage.FOSSILIZED: {"stem"}, Stage.HOLDING: {"head"}}
    assert Snapshot(HostSnapshot(0, 1, 1, 1), tuple(slots)).delivered == delivered.get(stage, set())


def contracts() -> Iterator[type]:
    """Every record and protocol of the contracts, and those that learner and controller add."""
    for info in pkgutil.iter_modules(esper.contracts.__path__):
        module = importlib.import_module(f"esper.contracts.{info.name}")
        for each in vars(module).values():
            named_here = isinstance(each, type) and each.__module__ == module.__name__
            if named_here and (dataclasses.is_dataclass(each) or getattr(each, "_is_protocol", False)):
                yield each
    yield from (Policy, Network, UpdateMetrics, HeadMetrics)


def untyped(contract: type) -> set[str]:
    """The fields, arguments and results of a contract that say `Any`."""
    methods = {name: each for name, each in vars(contract).items() if callable(each) and not name.startswith("__")}
    said = {name: hint for name, hint in get_type_hints(contract).items() if name in contract.__annotations__}
    for name, method in methods.items():
        said |= {f"{name}.{argument}": hint for argument, hint in get_type_hints(method).items()}
    return {f"{contract.__name__}.{name}" for name, hint in said.items() if mentions_any(hint)}


def mentions_any(hint: object) -> bool:
    return hint is Any or any(map(mentions_any, get_args(hint)))


POLICY_STATE = {"Policy.start.return", "Policy.act.state", "Policy.act.return"}
"""What a policy remembers is its own affair; nobody else reads it."""
ARRAYS = {"Policy.act.observation"}
"""Arrays of several kinds of number under their names."""


def test_contracts_name_real_types():
    """R0-C1: no `Any` for metrics, alpha control or anything else that packages hand each other."""
    walked = list(contracts())
    assert {SlotSnapshot, esper.contracts.Sink, Policy, UpdateMetrics} < set(walked)
    assert set().union(*map(untyped, walked)) == POLICY_STATE | ARRAYS


def test_defaults_are_stated_and_what_is_handed_on_is_frozen():
    """R0-C2: a slot that is only placed is dormant, at alpha 0 and unmeasured; an action needs its op alone."""
    snapshot = SlotSnapshot("stem", Topology.CNN, 8, 0, ("norm",))
    said = {field.name: getattr(snapshot, field.name) for field in dataclasses.fields(snapshot)[5:]}
    assert said == {
        **{"stage": Stage.DORMANT, "age": 0, "parameters": 0, "anomalies": (), "gains": ()},
        **{"alpha": 0.0, "alpha_target": 0.0, "alpha_mode": AlphaMode.STILL},
        **dict.fromkeys(("blueprint", "style", "tempo", "gradient_norm", "contribution", "improvement")),
        **{"resolution": 1, "front_parameters": 0},
        **dict.fromkeys(("reach", "reach_share")),
        "ready": False,
    }
    assert [field.name for field in dataclasses.fields(Action) if field.default is dataclasses.MISSING] == ["op"]
    for contract in contracts():
        assert not dataclasses.is_dataclass(contract) or contract.__dataclass_params__.frozen, contract
