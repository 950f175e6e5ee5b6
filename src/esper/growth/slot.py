"""A slot: the place behind one host submodule where a seed can live, and the only owner of its state."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from esper.contracts import Gain, SlotId, SlotSnapshot, Topology
from esper.growth.blending import Seed, assemble
from esper.growth.blueprints import find_blueprint
from esper.growth.first_order import GainMeter
from esper.growth.front import Front
from esper.growth.interface import Call
from esper.growth.lifecycle import Plan, SlotState
from esper.growth.reach import Reach


@dataclass(frozen=True)
class Site:
    """What a slot is attached to, fixed for life.

    `position` is its place in the forward pass, `shape` that of one sample's features, without the batch. `front` is
    the submodule in front of the slot. `reach` is how much of an image they see, if that could be measured.
    """

    slot: SlotId
    topology: Topology
    channels: int
    position: int
    shape: tuple[int, ...]
    blueprints: tuple[str, ...]
    front: Front
    reach: Reach | None = None


class Slot(nn.Module):
    """Holds at most one seed and applies it to the features of the submodule it is attached to.

    `Body` judges operations, computes the state that follows and hands it to `become`.
    """

    seed: Seed | None
    _alpha: Tensor

    def __init__(self, site: Site, like: Tensor) -> None:
        super().__init__()
        self.site = site
        self.register_module("seed", None)  # so that to `torch.compile` an emptied slot is one that was always empty
        self.muted = False
        self.bypassed = False
        self._last_norm: Tensor | None = None
        self._finite_norms: Tensor | None = None
        self._anomalies: list[str] = []
        offered = [find_blueprint(name, site.topology) for name in site.blueprints]
        self.meter = GainMeter(offered, site.channels, site.front)
        self.gains: tuple[Gain, ...] = ()
        # It follows the host through `.to(...)`, and so tells seeds where to be born as well.
        self.register_buffer("_alpha", like.detach().new_zeros(()), persistent=False)
        self.state = SlotState()

    @property
    def id(self) -> SlotId:
        return self.site.slot

    @property
    def state(self) -> SlotState:
        return self._state

    @state.setter
    def state(self, state: SlotState) -> None:
        """What the forward pass reads follows from the state, and from nothing else."""
        self._state = state
        self._alpha.fill_(self.alpha)

    @property
    def alpha(self) -> float:
        return self.state.schedule.alpha

    @property
    def seed_parameters(self) -> list[nn.Parameter]:
        return [] if self.seed is None else list(self.seed.parameters())

    def snapshot(self, quality: float | None = None) -> SlotSnapshot:
        """The slot now; `quality` is that of the network."""
        state, plan, born = self.state, self.state.plan, self.state.quality_at_birth
        return SlotSnapshot(
            slot=self.id,
            topology=self.site.topology,
            channels=self.site.channels,
            position=self.site.position,
            blueprints=self.site.blueprints,
            stage=state.stage,
            age=state.age,
            blueprint=plan.blueprint if plan else None,
            style=plan.style if plan else None,
            tempo=plan.tempo if plan else None,
            alpha=self.alpha,
            alpha_target=state.alpha_target,
            alpha_mode=state.schedule.mode,
            parameters=sum(parameter.numel() for parameter in self.seed_parameters),
            gradient_norm=state.gradient_norm,
            contribution=state.contribution,
            improvement=None if quality is None or born is None else quality - born,
            anomalies=state.anomalies,
            gains=self.gains,
            resolution=math.prod(self.site.shape) // self.site.channels,
            reach=self.site.reach.positions if self.site.reach else None,
            reach_share=self.site.reach.share if self.site.reach else None,
            front_parameters=self.site.front.parameters,
        )

    def forward(self, h: Tensor, call: Call) -> Tensor:
        """What the host's submodule puts out; `h` itself while the caller sees to the slot."""
        if self.bypassed:
            return h
        if not torch.compiler.is_compiling() and self.meter.armed and self.training and torch.is_grad_enabled():
            h = self.meter.watch(h, call)
        return self.apply_to(h, call)

    def apply_to(self, h: Tensor, call: Call | None = None) -> Tensor:
        """The features as the rest of the network sees them: `h` itself unless there is a seed."""
        if self.seed is None or self.muted:
            return h
        # Compiled code reads the buffer, so that a ramp compiles nothing anew; otherwise a number is cheaper.
        blended: Tensor = self.seed(h, self._alpha if torch.compiler.is_compiling() else self.alpha, call)
        return blended

    @contextmanager
    def set(self, **flags: bool) -> Iterator[None]:
        """`muted` (leave the seed out), `bypassed` (leave it to the caller)."""
        before = {name: getattr(self, name) for name in flags}
        for name, value in flags.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def become(self, state: SlotState, generator: torch.Generator) -> None:
        """Take on `state`, with the seed and the gate that its plan asks for and no other."""
        self.seed = self._seed_for(state.plan, generator)
        if state.plan is None:
            self._forget_epoch()
        else:
            self.meter.armed, self.gains = False, ()
        self.state = state

    def mirror(self, other: "Slot") -> None:
        """Take on the state of the slot that this is a copy of. A seed keeps its weights here, a new one is copied."""
        plan, before = other.state.plan, self.state.plan
        self.become(other.state, torch.Generator())
        newborn = plan is not None and (before is None or before.blueprint != plan.blueprint)
        if newborn and self.seed is not None and other.seed is not None:
            self.seed.load_state_dict(other.seed.state_dict())

    def _seed_for(self, plan: Plan | None, generator: torch.Generator) -> Seed | None:
        """The present seed as far as it fits `plan`; what is missing is built from the generator's next number."""
        if plan is None:
            return None
        if self.seed is not None and self.state.plan is not None and self.state.plan.blueprint == plan.blueprint:
            same = self.seed.operator is plan.style.operator
            return self.seed if same else self._settle(self.seed.delta, plan)
        blueprint = find_blueprint(plan.blueprint, self.site.topology)
        birth = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(birth)
            delta = blueprint.newborn(self.site.channels, self.site.front)
        return self._settle(delta, plan)

    def _settle(self, delta: nn.Module, plan: Plan) -> Seed:
        """A seed in the host's place and mode."""
        seed = assemble(delta, plan.style.operator, self.site.channels, self.site.topology)
        return seed.to(self._alpha).train(self.training)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Says what to do if the state has a seed and the slot has none."""
        if self.seed is None and any(name.startswith(f"{prefix}seed.") for name in state_dict):
            rest[-1].append(
                f"there is a seed for slot '{self.id}', which is empty; first load the state of the body or gardener, "
                "which grows it, then this one"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def structure(self, plan: Plan) -> dict[str, torch.Size]:
        """Names and shapes of the tensors of the seed that `plan` asks for; allocates nothing."""
        blueprint = find_blueprint(plan.blueprint, self.site.topology)
        with torch.device("meta"):
            delta = blueprint.newborn(self.site.channels, self.site.front.hollow())
            seed = assemble(delta, plan.style.operator, self.site.channels, self.site.topology)
        return {name: value.shape for name, value in seed.state_dict().items()}

    def record_gradients(self) -> None:
        """Note the norm of the seed's gradients of this batch; it stays on the device until the epoch ends."""
        gradients = [parameter.grad for parameter in self.seed_parameters if parameter.grad is not None]
        if not gradients:
            return
        self.record_gradient_norm(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))

    def record_gradient_norm(self, norm: Tensor) -> None:
        """The same, by whoever has computed it already."""
        self._last_norm = norm = norm.float()
        finite = norm.isfinite()
        sum_and_number = torch.stack([norm.where(finite, 0.0), finite.float()])
        self._finite_norms = sum_and_number if self._finite_norms is None else self._finite_norms + sum_and_number

    def record_anomaly(self, what: str) -> None:
        self._anomalies.append(what)

    def publish_epoch(self) -> None:
        """Move what this epoch's batches measured into the state."""
        norm = self._mean_norm()
        if norm is not None and not math.isfinite(norm):
            self._anomalies.append("non-finite gradient")
        if self.seed is not None:
            self.state = replace(self.state, gradient_norm=norm, anomalies=tuple(self._anomalies))
        self._forget_epoch()
        self.gains = self.meter.read(self._alpha) or self.gains

    def _mean_norm(self) -> float | None:
        """Of this epoch's finite gradients; the last one's if that is not finite.

        What is not finite spoils every batch after it, unless its step was skipped, as gradient scalers do at times.
        """
        if self._last_norm is None or self._finite_norms is None:
            return None
        total, number = self._finite_norms.tolist()
        last = float(self._last_norm)
        return total / number if math.isfinite(last) else last

    def _forget_epoch(self) -> None:
        self._last_norm, self._finite_norms, self._anomalies = None, None, []
