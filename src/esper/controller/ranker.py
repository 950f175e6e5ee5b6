"""A regression that predicts what each seed would gain in each slot, and plants the best one if it pays.

It is fitted on a survey of a family (`esper.runs.survey.fit`). What a choice depends on is all in the observation, so
it needs no memory: it is the bar for every learned controller.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from esper.contracts import ActionCodec, EsperError, ObservationFields, Op, nearest
from esper.controller.planting import Planted, Planting
from esper.controller.policy import Arrays, legal_ops

Array = NDArray[np.float64]
MAX_BYTES = 4_000_000


class BadRanker(EsperError):
    """A file that holds no regression for this observation."""


@dataclass(frozen=True)
class Columns:
    """The features that a regression reads, by name."""

    host: tuple[str, ...]
    slots: tuple[str, ...]
    blueprints: tuple[str, ...]

    def candidates(self, host: Array, slots: Array, offers: Array, fields: ObservationFields) -> Array:
        """What is known of each seed in each slot, (slots, blueprints, numbers); what was not measured becomes a bit.

        `host` is (features), `slots` (slots, features), `offers` (slots, blueprints, features).
        """
        count, seeds = offers.shape[:2]
        parts = [
            np.broadcast_to(host[_places(self.host, fields.host)], (count, seeds, len(self.host))),
            np.broadcast_to(slots[:, None, _places(self.slots, fields.slots)], (count, seeds, len(self.slots))),
            offers[:, :, _places(self.blueprints, fields.blueprints)],
        ]
        known = np.concatenate(parts, axis=2)
        return np.concatenate([np.nan_to_num(known), np.isnan(known)], axis=2)


def _places(names: tuple[str, ...], known: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in known:
            raise BadRanker(f"the observation has no number '{name}'; {nearest(name, known)}")
    return [known.index(name) for name in names]


@dataclass(frozen=True)
class Regression:
    """Several small networks of two hidden layers, whose predictions are averaged. Weights have one row per network."""

    columns: Columns
    decides_after: int
    """Epochs of looking on before anything is planted."""
    weights: dict[str, Array]

    def predict(self, candidates: Array) -> Array:
        """The quality that each seed gains, without what it costs."""
        w = self.weights
        x = (candidates - w["mean"]) / w["scale"]
        h = np.maximum(np.einsum("...f,efh->...eh", x, w["w1"]) + w["b1"], 0.0)
        h = np.maximum(np.einsum("...eh,ehk->...ek", h, w["w2"]) + w["b2"], 0.0)
        each: Array = np.einsum("...ek,ek->...e", h, w["w3"]) + w["b3"]
        mean: Array = each.mean(axis=-1)
        return mean


class Ranker(Planting):
    """Plants the seed from which most score is predicted, if any is."""

    name = "ranker"

    def __init__(self, fields: ObservationFields, regression: Regression | None = None) -> None:
        self.fields, self.regression = fields, regression or shipped_regression()
        self._cost, self._rent = fields.blueprints.index("cost"), fields.host.index("rent")

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        if epoch < self.regression.decides_after:
            return None
        worth = self.scores(observation)
        legal = legal_ops(observation)[Op.GERMINATE][:, None] & (observation["mask_slot_blueprint"] == 1)
        worth = np.where(legal, worth, -np.inf)
        slot, seed = np.unravel_index(int(np.argmax(worth)), worth.shape)
        return ((codec.slots[slot], codec.blueprints[seed]),) if worth[slot, seed] > 0.0 else ()

    def scores(self, observation: Arrays) -> Array:
        """What each seed is predicted to gain in each slot, rent paid."""
        host, slots, offers = (_measured(observation, name) for name in ("host", "slots", "blueprints"))
        candidates = self.regression.columns.candidates(host, slots, offers, self.fields)
        rent = 10.0 ** float(observation["host"][self._rent])
        scores: Array = self.regression.predict(candidates) - rent * observation["blueprints"][:, :, self._cost]
        return scores


def _measured(observation: Arrays, name: str) -> Array:
    return np.where(observation[f"{name}_valid"] == 1, observation[name], np.nan).astype(np.float64)


def load_regression(path: Path) -> Regression:
    """The regression in a safetensors file; anything else is refused."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadRanker(f"{path} has more than {MAX_BYTES:,} bytes; give what 'esper survey fit' wrote")
        with safe_open(path, framework="numpy") as file:
            told: Any = msgspec.json.decode((file.metadata() or {}).get("regression", "null"))
            columns = msgspec.convert(told["columns"], Columns)
            weights = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118
        regression = Regression(columns, int(told["decides_after"]), weights)
        numbers = 2 * (len(columns.host) + len(columns.slots) + len(columns.blueprints))
        if not np.isfinite(regression.predict(np.zeros((1, numbers)))).all():
            raise BadRanker(f"{path} has numbers that are not finite; give what 'esper survey fit' wrote")
    except (OSError, SafetensorError, msgspec.MsgspecError, TypeError, KeyError, ValueError) as error:
        raise BadRanker(f"{path} is no regression ({error}); give what 'esper survey fit' wrote") from error
    return regression


RANKER_SUM = ""
"""SHA-256 of the shipped regression."""


def shipped_regression() -> Regression:
    """The one that comes with this package."""
    path = Path(str(resources.files("esper.controller") / "weights" / "ranker.safetensors"))
    if hashlib.sha256(path.read_bytes()).hexdigest() != RANKER_SUM:
        raise BadRanker(f"{path} is not what it was; install this package again")
    return load_regression(path)
