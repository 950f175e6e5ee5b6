"""A gardener in a user's own loop."""

import copy
import io
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import esper
from esper.cli import main
from esper.contracts import ACCURACY_GRAIN, LOSS_GRAIN, EsperError, Stage, Style
from esper.controller import Schedule, ScheduledSeed
from esper.gardener import (
    BadExample,
    BadSetting,
    ForeignOptimizer,
    NoPlace,
    NoScore,
    NotFraction,
    TooManySteps,
    WrongState,
    report_in,
)
from esper.gardener.story import EventsNotWritable
from esper.growth import Slot
from esper.growth.graft import AlreadyCompiled, AlreadyGrafted
from esper.growth.membership import SchedulerFirst
from esper.telemetry.query import query
from tests.gardener.loops import EPOCHS, GROWTH, Training, X, Y, evaluate, logits, mlp, plan, same, train


def named(controller) -> str:
    return controller if isinstance(controller, str) else controller.name


CONTROLLERS = ["ranker", "heuristic", "constant", "random", "tamiyo-small", GROWTH]


@pytest.mark.parametrize("controller", CONTROLLERS, ids=named)
def test_any_controller_grows_a_host_and_the_harvest_is_what_was_kept(controller):
    training = Training.begun(controller=controller)
    training.play()
    gardener = training.gardener
    plain = gardener.harvest()
    assert not any(hasattr(part, "esper_slot") for part in plain.modules())
    kept = gardener.costs().kept.parameters
    assert sum(each.numel() for each in plain.parameters()) == kept
    report = gardener.report()
    assert len(report.qualities) == EPOCHS
    assert report.harvested is not None
    assert report.harvested.parameters == kept
    assert report.harvested.quality == pytest.approx(evaluate(plain.eval())["accuracy"])


def test_a_gardener_that_waits_changes_nothing():
    grown, alone = Training.begun(controller="none"), mlp()
    optimizer = torch.optim.AdamW(alone.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        train(alone, optimizer, epoch)
        scheduler.step()
    grown.play()
    assert same(grown.model, alone)
    assert same(grown.gardener.harvest(), alone)


@pytest.mark.parametrize("controller", [GROWTH, "ranker", "tamiyo-small"], ids=named)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_saved_training_goes_on_bit_for_bit(controller, optimizer, stop):
    kinds = {
        "adam": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
        "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    }
    whole, rest = (Training.begun(controller=controller, optimizer=kinds[optimizer]) for _ in range(2))
    whole.play(last=stop)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    whole.play(first=stop)
    file.seek(0)
    rest.load_state_dict(torch.load(file, weights_only=True))
    rest.play(first=stop)
    assert same(whole.model, rest.model)
    assert same(whole.gardener.harvest(), rest.gardener.harvest())
    one, other = (str(each.gardener.report()) for each in (whole, rest))
    assert one == other


def test_an_older_state_of_the_model_alone_is_refused_and_with_the_gardeners_it_is_the_best_epoch_again():
    training = Training.begun(controller=plan((1, "1", "mlp")))
    training.play(last=1)
    best, kept = copy.deepcopy(training.state_dict()), training.gardener.harvest()
    training.play(first=1)
    with pytest.raises(RuntimeError, match="state is of a time when it had none; first load the state"):
        training.model.load_state_dict(best["model"])
    training.load_state_dict(best)
    assert same(training.gardener.harvest(), kept)


def test_loading_in_the_wrong_order_says_which_is_right():
    training = Training.begun()
    training.play(last=3)
    fresh = Training.begun()
    with pytest.raises(RuntimeError, match="first load the state of the body or gardener"):
        fresh.model.load_state_dict(training.model.state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": EPOCHS + 1}, "was made for 8 epochs, this one for 9"),
        ({"controller": "heuristic"}, "had the controller 'schedule', this one 'heuristic'"),
        ({"controller": plan((1, "3", "mlp"))}, "decides otherwise"),
    ],
)
def test_the_state_of_another_gardener_is_refused(settings, message):
    training = Training.begun()
    training.play(last=2)
    other = Training.begun(**settings)
    with pytest.raises(WrongState, match=message):
        other.gardener.load_state_dict(training.gardener.state_dict())


@pytest.mark.parametrize("call", range(3))
def test_an_exception_in_evaluate_leaves_everything_as_it_was(call):
    failing, calm = Training.begun(), Training.begun()
    calm.play()
    calls = []

    def fails_once(model):
        calls.append(1)
        if len(calls) == call + 1:
            raise ZeroDivisionError("mine")
        return evaluate(model)

    for epoch in range(EPOCHS):
        failing.train(epoch)
        if epoch == 4:
            before = copy.deepcopy(failing.state_dict())
            modes = [part.training for part in failing.model.modules()]
            with pytest.raises(ZeroDivisionError, match="mine"):
                failing.gardener.step(fails_once)
            assert [part.training for part in failing.model.modules()] == modes
            assert str(before) == str(failing.state_dict())
        failing.gardener.step(evaluate)
    assert len(calls) == call + 1
    assert same(failing.model, calm.model)


def test_extra_evaluations_draw_no_random_numbers():
    training, drawn = Training.begun(), []

    def draws(model):
        drawn.append(float(torch.rand(())))
        return evaluate(model)

    torch.manual_seed(3)
    for epoch in range(5):
        training.train(epoch)
        training.gardener.step(draws)
    assert len(drawn) > 5
    after = float(torch.rand(()))
    torch.manual_seed(3)
    assert [float(torch.rand(())) for _ in range(6)][-1] == after


# Catastrophes


@pytest.mark.parametrize("epoch", [3, 6])
def test_a_catastrophe_brings_back_model_and_optimiser(epoch, caplog):
    training = Training.begun(optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01))
    training.play(last=epoch)
    fossils = {slot.id for slot in training.gardener.body.living() if slot.state.stage is Stage.FOSSILIZED}
    host = {name: value.clone() for name, value in training.model.state_dict().items() if "esper" not in name}
    moments = {
        each: training.optimizer.state[each]["exp_avg"].clone() for each in training.gardener.body.host_weights()
    }
    training.train(epoch)
    with torch.no_grad():
        next(training.model.parameters()).fill_(math.nan)
    progress = training.gardener.step(evaluate)
    assert "rolled back" in progress.done
    assert "model and optimizer are as they last were good" in caplog.text
    now = training.model.state_dict()
    assert all(torch.equal(now[name], value) for name, value in host.items())
    assert all(torch.equal(training.optimizer.state[each]["exp_avg"], value) for each, value in moments.items())
    assert {slot.id for slot in training.gardener.body.living()} <= fossils
    training.train(epoch + 1)
    assert "grows no more" in training.gardener.step(evaluate).done
    assert f"rolled back in epoch {epoch + 1}: the evaluation loss is nan" in str(training.gardener.report())


def test_a_score_that_falls_to_guessing_for_two_epochs_is_a_catastrophe():
    training = Training.begun(controller="none", epochs=20)
    said = iter([0.9, 0.95, 0.96, 0.5, 0.5])
    done = []
    for epoch in range(5):
        training.train(epoch)
        done.append(training.gardener.step(lambda model: next(said)).done)
    assert [text.startswith("grows no more") for text in done] == [False, False, False, False, True]


# Budgets


@pytest.mark.parametrize("controller", CONTROLLERS[:-1])
@pytest.mark.parametrize(
    "budget", [{"max_added_parameters": 60}, {"max_added_flops": 400}, {"max_added_parameters": 0}]
)
def test_a_budget_is_never_exceeded(controller, budget):
    training = Training.begun(controller=controller, **budget)
    for epoch in range(EPOCHS):
        training.train(epoch)
        training.gardener.step(evaluate)
        costs = training.gardener.costs()
        assert costs.live.parameters - costs.host.parameters <= budget.get("max_added_parameters", math.inf)
        assert costs.live.flops - costs.host.flops <= budget.get("max_added_flops", math.inf)


def test_what_a_schedule_plants_must_be_within_the_budget():
    with pytest.raises(BadSetting, match=r"'mlp' does not fit slot '1'.*norm.*within the budget"):
        Training.begun(max_added_parameters=60)
    both = Training.begun(max_added_parameters=300)
    both.play()
    assert [life.slot for life in both.gardener.report().lives] == ["1"]


def test_the_plan_says_what_is_beyond_the_budget_and_what_is_left_out():
    plan = Training.begun(max_added_parameters=100, controller="none").gardener.plan()
    assert [place.slot for place in plan.places] == ["1", "3"]
    assert [place.shape for place in plan.places] == [(2, 8), (2, 8)]
    text = str(plan)
    assert "norm         +25 parameters" in text
    assert (
        "mlp          +289 parameters, +1,129 operations  (beyond the budget)" in text or "(beyond the budget)" in text
    )
    assert "not 4: the model's output" in text


# Scores


def test_a_loss_counts_from_its_first_value_to_zero():
    training = Training.begun(direction="min")
    for epoch in range(EPOCHS):
        training.train(epoch)
        training.gardener.step(lambda model: evaluate(model)["loss"])
    qualities = training.gardener.report().qualities
    assert qualities[0] == 0.0
    assert 0.0 < qualities[-1] < 1.0


@pytest.mark.parametrize(("direction", "least"), [("max", ACCURACY_GRAIN), ("min", LOSS_GRAIN)])
def test_what_a_seed_must_bring_to_be_kept_is_less_where_losses_are_judged(direction, least):
    assert Training.begun(direction=direction).gardener.body.thresholds.min_contribution == least


def test_a_scale_makes_any_score_a_quality():
    training = Training.begun(scale=(0.0, 100.0))
    training.train(0)
    training.gardener.step(lambda model: 93.0)
    assert training.gardener.report().qualities == (pytest.approx(0.93),)


@pytest.mark.parametrize(
    ("settings", "told", "error", "message"),
    [
        ({}, 93.1, NotFraction, "93.1.*divide percentages by 100"),
        ({}, None, NoScore, "returned a NoneType"),
        ({}, {"loss": 0.3}, NoScore, "with 'loss'.*needs 'score' or 'accuracy'"),
        ({}, "0.5", NoScore, "returned a str"),
        ({}, True, NoScore, "returned a bool"),
        ({}, -1.2, NotFraction, "-1.2.*for a loss give direction='min'"),
        ({"scale": (0.0, 1.0)}, 93.0, NotFraction, "93, better than the best of scale"),
        ({}, math.nan, NoScore, "returned a score of nan"),
        ({}, {"accuracy": 0.5, "loss": math.inf}, NoScore, "loss of inf"),
        ({"direction": "min"}, -1.0, NotFraction, "a loss above 0"),
        ({"direction": "min"}, {"accuracy": 0.5}, NoScore, "needs 'score' or 'loss'"),
    ],
)
def test_a_score_that_cannot_be_right_is_told_at_once_and_changes_nothing(settings, told, error, message):
    training = Training.begun(**settings)
    training.train(0)
    before = str(training.state_dict())
    with pytest.raises(error, match=message):
        training.gardener.step(lambda model: told)
    assert str(training.state_dict()) == before
    training.gardener.step(lambda model: {"accuracy": 0.5, "loss": 0.5})


@pytest.mark.parametrize(
    "told",
    [
        0.5,
        torch.tensor(0.5),
        {"score": 0.5},
        np.array([0.5]),
        {"accuracy": torch.tensor([0.5]), "f1": 0.1, "loss": None},
    ],
)
def test_a_score_may_be_any_number(told):
    training = Training.begun()
    training.train(0)
    assert training.gardener.step(lambda model: told).score == 0.5


# Bad use


def test_the_function_is_wanted_not_its_score():
    training = Training.begun()
    with pytest.raises(NoScore, match="step was given a float; give the function"):
        training.gardener.step(0.93)
    with pytest.raises(NoScore, match="step was given nothing; give the function"):
        training.gardener.step()


def test_model_and_optimiser_in_the_wrong_order_are_told():
    model = mlp()
    with pytest.raises(BadSetting, match=r"the model is a Adam; give the torch\.nn\.Module, and then its optimizer"):
        esper.Gardener(torch.optim.Adam(model.parameters()), model, example=X, epochs=2)


@pytest.mark.parametrize("directory", ["file", "file/inside"])
def test_a_directory_that_cannot_be_made_is_told_and_changes_nothing(tmp_path, directory):
    (tmp_path / "file").touch()
    model = mlp()
    optimizer, kinds = torch.optim.Adam(model.parameters()), list(map(type, model.modules()))
    with pytest.raises(EventsNotWritable, match=r"is a file; give a directory|cannot be made"):
        esper.Gardener(model, optimizer, example=X, epochs=2, directory=tmp_path / directory)
    assert list(map(type, model.modules())) == kinds
    assert len(optimizer.param_groups) == 1


def test_a_gardener_that_is_refused_leaves_an_earlier_garden_alone(tmp_path):
    training = Training.begun(directory=tmp_path)
    training.play(last=2)
    told = str(report_in(tmp_path))
    with pytest.raises(NoPlace):
        Training.begun(at="layer*", directory=tmp_path)
    assert str(report_in(tmp_path)) == told


def test_more_steps_than_epochs_are_told():
    training = Training.begun(epochs=1)
    training.play(last=1)
    with pytest.raises(TooManySteps, match="step 2 of 1"):
        training.gardener.step(evaluate)


class Shared(nn.Module):
    """Nothing in it runs once but its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(torch.relu(self.layer(torch.relu(self.layer(x)))))


class Labelled(nn.Module):
    """Wants labels in training."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x, labels=None):
        if self.training and labels is None:
            raise ValueError("labels, please")
        return self.inner(x)


class Muon(torch.optim.SGD):
    """By its name."""


def scheduled(model):
    optimizer = torch.optim.Adam(model.parameters())
    LambdaLR(optimizer, lambda epoch: 1.0)
    return optimizer


BAD = [
    ({}, {"optimizer": scheduled}, SchedulerFirst, "has a learning-rate scheduler already"),
    ({}, {"optimizer": lambda model: torch.optim.Adam(mlp().parameters())}, ForeignOptimizer, "none of the model's"),
    ({}, {"optimizer": lambda model: torch.optim.LBFGS(model.parameters())}, ForeignOptimizer, "LBFGS"),
    ({}, {"optimizer": lambda model: None}, ForeignOptimizer, "is a NoneType"),
    ({}, {"optimizer": lambda model: Muon(model.parameters())}, ForeignOptimizer, "Muon trains matrices only"),
    ({"model": lambda: nn.Sequential(torch.jit.script(nn.Linear(6, 8)), nn.Linear(8, 2))}, {}, AlreadyCompiled, "part"),
    ({"model": lambda: mlp().to("meta")}, {}, BadSetting, "weights are on the device 'meta'"),
    ({}, {"example": X[:0]}, BadExample, "has no rows"),
    ({"model": lambda: Labelled()}, {}, BadExample, "ValueError in training mode without gradients: labels, please"),
    ({"model": Shared}, {}, NoPlace, "layer: runs 2 times"),
    ({"model": lambda: nn.Linear(6, 2)}, {}, NoPlace, "calls no submodules"),
    ({"model": lambda: torch.compile(mlp())}, {}, AlreadyCompiled, "compiled already"),
    ({}, {"example": (X, Y)}, BadExample, "cannot be called on the example.*without the labels"),
    ({}, {"epochs": 0}, BadSetting, "epochs is 0"),
    ({}, {"direction": "up"}, BadSetting, "direction is 'up'"),
    ({}, {"rent": -1.0}, BadSetting, "rent is -1.0"),
    ({}, {"rent": math.nan}, BadSetting, "rent is nan"),
    ({}, {"rent": 2}, BadSetting, "rent is 2; give the quality .* a fraction from 0 to 1"),
    ({}, {"rent": "0.1"}, BadSetting, "rent is '0.1'"),
    ({}, {"max_added_parameters": -1}, BadSetting, "max_added_parameters is -1"),
    ({}, {"max_added_parameters": 0.5}, BadSetting, "max_added_parameters is 0.5; give a whole number"),
    ({}, {"max_added_flops": "1M"}, BadSetting, "max_added_flops is '1M'"),
    ({}, {"scale": (1.0, 0.0)}, BadSetting, "scale is"),
    ({}, {"scale": 100}, BadSetting, r"scale is 100 .*two numbers \(worst, best\)"),
    ({}, {"scale": (0.0, math.inf)}, BadSetting, "scale is"),
    ({}, {"at": ["1", "1"]}, EsperError, "'1' is named 2 times"),
    ({}, {"controller": None}, BadSetting, "controller is None; give the name of a policy"),
    ({}, {"at": "layer*"}, NoPlace, "no submodule matches"),
    ({}, {"at": ["9"]}, EsperError, "no submodule '9'"),
    ({}, {"controller": "rankr"}, EsperError, "did you mean 'ranker'"),
    ({}, {"controller": plan((0, "9", "mlp"))}, EsperError, "there is no slot '9'"),
]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(("given", "settings", "error", "message"), BAD, ids=[case[-1] for case in BAD])
def test_bad_use_is_told_at_once_and_leaves_model_and_optimiser_alone(given, settings, error, message):
    model = given.get("model", mlp)()
    make = settings.pop("optimizer", lambda model: torch.optim.Adam(model.parameters()))
    optimizer = make(model)
    groups = len(optimizer.param_groups) if optimizer else 0
    kinds = list(map(type, model.modules()))
    with pytest.raises(error, match=message):
        esper.Gardener(model, optimizer, **{"example": X, "epochs": EPOCHS} | settings)
    assert list(map(type, model.modules())) == kinds
    assert optimizer is None or len(optimizer.param_groups) == groups


def test_a_model_has_one_gardener():
    training = Training.begun()
    with pytest.raises(AlreadyGrafted, match="has a gardener or a body already"):
        esper.Gardener(training.model, training.optimizer, example=X, epochs=3)


def test_an_ungrafted_model_is_as_it_was_and_can_have_another_gardener():
    training = Training.begun()
    training.play(last=3)
    assert type(training.gardener.ungraft()[1]) is nn.ReLU
    with pytest.raises(TooManySteps, match="given the model back"):
        training.gardener.step(evaluate)


# Loops


class Wrapped(nn.Module):
    """Takes a dictionary and puts out something of any kind."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.inner, self.kind = mlp(), kind

    def forward(self, x):
        return self.kind(self.inner(x))


class Both(nn.Module):
    """A shared layer, one that never runs, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.second = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.unused, self.head, self.other = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.relu(self.shared(torch.relu(self.shared(torch.relu(self.first(x))))))
        h = torch.relu(self.second(h))
        return {"logits": self.head(h), "other": torch.log_softmax(self.other(h), 1)}


MODELS = {
    "dict": lambda: Wrapped(lambda out: {"logits": out}),
    "tuple": lambda: Wrapped(lambda out: (out, out.mean())),
    "object": lambda: Wrapped(lambda out: SimpleNamespace(logits=out)),
    "both": Both,
    "frozen": lambda: nn.Sequential(*(part.requires_grad_(index > 2) for index, part in enumerate(mlp()))),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_many_kinds_grow(name):
    model = MODELS[name]()
    last = {"both": "second", "frozen": "1"}.get(name, "inner.1")
    training = Training.begun(
        model,
        controller=plan((0, last, "mlp")),
        optimizer=lambda model: torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01),
    )
    training.play()
    assert training.gardener.report().lives[0].blueprint == "mlp"
    plain = training.gardener.harvest().eval()
    assert logits(plain(X)).shape == (len(X), 2)


def test_places_of_a_model_with_two_outputs_are_before_both():
    plan = Training.begun(Both(), controller="none").gardener.plan()
    assert [place.slot for place in plan.places] == ["first", "second"]
    assert "runs 2 times" in plan.left_out["shared"]
    assert plan.left_out["head"].startswith("the model's output")


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda optimizer: OneCycleLR(optimizer, 0.05, total_steps=EPOCHS),
        lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    ],
)
def test_any_scheduler_that_is_made_later_moves_the_rates_of_seeds(scheduler):
    training = Training.begun(scheduler=scheduler)
    training.play()
    rates = {group["lr"] for group in training.optimizer.param_groups}
    assert len(rates) == 1


def test_a_plateau_scheduler_moves_the_rates_of_seeds():
    training = Training.begun()
    plateau = ReduceLROnPlateau(training.optimizer, patience=0)
    for _ in range(3):
        plateau.step(1.0)
    assert len({group["lr"] for group in training.optimizer.param_groups}) == 1


def test_a_seed_has_the_options_of_the_group_that_trains_its_place():
    def grouped(model):
        groups = [
            {"params": model[0].parameters(), "lr": 0.01},
            {"params": model[2].parameters(), "lr": 0.02, "weight_decay": 0.3},
            {"params": model[4].parameters(), "lr": 0.0},
        ]
        return torch.optim.AdamW(groups)

    training = Training.begun(optimizer=grouped, controller="none", at=["0", "2"])
    assert [group["lr"] for group in training.optimizer.param_groups[3:]] == [0.01, 0.02]
    assert training.optimizer.param_groups[4]["weight_decay"] == 0.3


def test_a_place_without_weights_has_the_options_of_the_weights_around_it():
    def split(model):
        decayed = {"params": [each for each in model.parameters() if each.ndim > 1], "weight_decay": 0.3}
        return torch.optim.AdamW([decayed, {"params": [each for each in model.parameters() if each.ndim == 1]}])

    def tuned(model):
        return torch.optim.AdamW([{"params": model[0].parameters(), "lr": 1e-4}, {"params": model[1].parameters()}])

    training = Training.begun(optimizer=split, at=["1", "3"], controller="none")
    assert training.optimizer.param_groups[2]["weight_decay"] == 0.3
    backbone = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Linear(8, 2))
    training = Training.begun(backbone, optimizer=tuned, at=["0.1"], controller="none", scheduler=lambda each: None)
    assert training.optimizer.param_groups[2]["lr"] == 1e-4


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.RMSprop(parameters, lr=0.001, momentum=0.9),
        lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=True),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
        lambda parameters: torch.optim.NAdam(parameters, lr=0.01, foreach=True),
        lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    ],
    ids=["rmsprop", "fused sgd", "fused adam", "nadam", "adafactor"],
)
def test_seeds_of_different_ages_and_gates_share_a_group_of_any_optimiser(optimizer):
    gated = Schedule((ScheduledSeed(0, "1", "mlp"), ScheduledSeed(2, "3", "low_rank", style=Style.GATED)))
    training = Training.begun(optimizer=lambda model: optimizer(model.parameters()), controller=gated)
    training.play(last=5)
    assert len(training.optimizer.param_groups) == 2
    before = [each.clone() for each in training.optimizer.param_groups[1]["params"]]
    assert len(training.gardener.body.living()) == 2
    training.train(5)
    assert all(
        not torch.equal(*pair) for pair in zip(before, training.optimizer.param_groups[1]["params"], strict=True)
    )


def test_an_optimiser_that_wraps_another_is_seen_through():
    class Twice(torch.optim.Optimizer):
        """Steps by its base alone, as SAM does."""

        def __init__(self, parameters):
            super().__init__(parameters, {})
            self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.1)
            self.param_groups = self.base_optimizer.param_groups

    training = Training.begun(optimizer=lambda model: Twice(model.parameters()))
    for epoch in range(3):
        train(training.model, training.optimizer.base_optimizer, epoch)
        training.gardener.step(evaluate)
    held = {id(each) for group in training.optimizer.param_groups for each in group["params"]}
    (slot,) = training.gardener.body.living()
    assert {id(each) for each in slot.seed_parameters} <= held
    assert slot.state.gradient_norm > 0.0


def test_an_optimiser_with_named_parameters_has_names_for_seeds():
    training = Training.begun(optimizer=lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.01))
    training.play(last=3)
    state = training.optimizer.state_dict()
    assert all(len(group["params"]) == len(group["param_names"]) for group in state["param_groups"])
    training.optimizer.load_state_dict(state)
    training.play(first=3)


def test_bfloat16_and_accumulated_gradients():
    training = Training.begun()
    for epoch in range(EPOCHS):
        training.model.train()
        for index, batch in enumerate(torch.arange(len(X)).split(16)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = cross_entropy(training.model(X[batch]), Y[batch]) / 2
            loss.backward()
            if index % 2:
                training.optimizer.step()
                training.optimizer.zero_grad()
        training.scheduler.step()
        training.gardener.step(evaluate)
        assert all(slot.gains for slot in training.gardener.body.slots if slot.seed is None) or epoch
    assert len(training.gardener.report().lives) == 2


def test_an_average_has_every_seed_and_can_be_harvested():
    training = Training.begun(controller=plan((0, "1", "mlp")))
    averaged = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    training.gardener.average_with(averaged)
    for epoch in range(EPOCHS):
        training.train(epoch)
        averaged.update_parameters(training.model)
        training.gardener.step(evaluate)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    plain = training.gardener.harvest(averaged).eval()
    assert all(torch.equal(value, before[name]) for name, value in training.model.state_dict().items())
    delivered = {fossil.slot for fossil in training.gardener.body.delivered()}
    for part in averaged.modules():
        if isinstance(part, Slot):
            part.muted = part.id not in delivered
    assert torch.equal(plain(X), averaged.module.eval()(X))


# Events


def test_a_directory_has_the_events_of_a_run(tmp_path):
    training = Training.begun(directory=tmp_path / "garden")
    training.play(last=4)
    saved = training.state_dict()
    training.play(first=4, last=6)
    rest = Training.begun(directory=tmp_path / "garden")
    rest.load_state_dict(saved)
    rest.play(first=4)
    rest.gardener.harvest()
    _, rows = query(tmp_path / "garden", "SELECT slot, blueprint, stage, germinated FROM seeds ORDER BY germinated")
    told = [(life.slot, life.blueprint, life.planted) for life in rest.gardener.report().lives]
    assert [(slot, blueprint, at) for slot, blueprint, _, at in rows] == told
    assert len(told) == 2
    _, rows = query(tmp_path / "garden", "SELECT state, tasks, reward FROM runs")
    assert rows == [("finished", ["Sequential"], "score")]
    _, rows = query(tmp_path / "garden", "SELECT epoch, quality FROM rewards ORDER BY epoch")
    assert tuple(quality for _, quality in rows) == rest.gardener.report().qualities
    _, ((total, quality, growth),) = query(tmp_path / "garden", "SELECT total, quality, growth FROM episodes")
    assert growth == rest.gardener.costs().kept.parameters / rest.gardener.costs().host.parameters
    assert quality == rest.gardener.report().harvested.quality
    live = rest.gardener.costs().live.parameters / rest.gardener.costs().host.parameters
    assert total == pytest.approx(rest.gardener.report().qualities[-1] - 0.02 * math.log(live))
    assert str(report_in(tmp_path / "garden")) == str(rest.gardener.report())


def test_show_and_query_read_the_directory_of_a_garden(tmp_path, capsys):
    training = Training.begun(directory=tmp_path / "garden")
    training.play()
    training.gardener.harvest()
    assert main(["show", str(tmp_path / "garden")]) == 0
    assert capsys.readouterr().out.strip() == str(training.gardener.report())
    assert main(["show", str(tmp_path / "garden"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["lives"]) == 2
    assert main(["query", str(tmp_path / "garden"), "SELECT count(*) FROM seeds"]) == 0
    assert capsys.readouterr().out.split()[-1] == "2"
    (tmp_path / "garden" / "events.jsonl").write_text("nothing\n")
    assert main(["show", str(tmp_path / "garden")]) == 2
    assert "holds no garden: give the `directory` of an esper.Gardener" in capsys.readouterr().err


def test_a_step_is_a_line_of_the_log(caplog):
    training = Training.begun()
    with caplog.at_level("INFO", logger="esper.gardener"):
        training.play(last=2)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("epoch 1/8  score 0.")
    assert lines[0].endswith("plants mlp behind 1")


def test_the_report_is_a_page_with_a_figure(tmp_path):
    training = Training.begun()
    training.play()
    training.gardener.harvest()
    training.gardener.report().to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<polyline" in page
    assert page.count("<tr>") == 2 + 2 + 1 + 1
