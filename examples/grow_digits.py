"""Grow a host on scikit-learn's digits by a fixed schedule, next to the same host without growth.

Run it with `make demo`, or `python examples/grow_digits.py --out out/demo.png`.

The host is a CNN of 1x1 convolutions: it cannot see space, so without growth it stays near chance. Two seeds
with 3x3 convolutions are germinated in its slots, trained with it, held and fossilised, through the
same gates that a controller faces. Both runs start from the same weights and see the same batches.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import esper
from esper.contracts import Action, Op, SlotSnapshot, Stage
from esper.growth import ConvHost, ConvShape

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

EPOCHS = 30
SLOTS = ["block0", "block1", "block2"]
SCHEDULE = {
    1: Action(Op.GERMINATE, "block1", blueprint="conv_light"),
    2: Action(Op.ADVANCE, "block1"),  # into TRAINING
    3: Action(Op.GERMINATE, "block2", blueprint="conv_light"),
    4: Action(Op.ADVANCE, "block1"),  # into HOLDING
    5: Action(Op.ADVANCE, "block2"),
    7: Action(Op.ADVANCE, "block2"),
    8: Action(Op.FOSSILIZE, "block1"),
    11: Action(Op.FOSSILIZE, "block2"),
}
"""What is done in which epoch; in all others the schedule waits."""


@dataclass(frozen=True)
class Digits:
    """Images of shape (n, 1, 8, 8) in 0..1 and their labels, split into training and evaluation."""

    train_x: Tensor
    train_y: Tensor
    evaluation_x: Tensor
    evaluation_y: Tensor


@dataclass(frozen=True)
class Record:
    """One epoch of a run."""

    accuracy: float
    parameters: int
    slots: tuple[SlotSnapshot, ...]


def digits(seed: int) -> Digits:
    """1,200 digits to train on and 597 to evaluate on."""
    raw = load_digits()
    x = torch.tensor(raw.data, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0
    y = torch.tensor(raw.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, evaluation = order[:1200], order[1200:]
    return Digits(x[train], y[train], x[evaluation], y[evaluation])


def run(data: Digits, schedule: dict[int, Action], seed: int) -> Iterator[Record]:
    """Train for all epochs, executing the schedule on the way."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        host = ConvHost(in_channels=1, classes=10, shape=ConvShape((4, 8, 8), kernel=1))
    body = esper.graft(host, at=SLOTS, example=data.train_x[:2])
    optimizer = torch.optim.Adam(host.parameters(), lr=0.01)
    body.optimise_with(optimizer)
    order = torch.Generator().manual_seed(seed)
    for epoch in range(EPOCHS):
        action = schedule.get(epoch)
        if action and not (verdict := body.execute(action)):
            print(f"  epoch {epoch}: {action.op.name} of {action.slot} was refused: {'; '.join(verdict.reasons)}")
        train_epoch(body, optimizer, data, order)
        accuracy = evaluate(body, data)
        body.tick()
        yield Record(accuracy, body.costs().live.parameters, body.snapshots())


def train_epoch(body: esper.Body, optimizer: torch.optim.Optimizer, data: Digits, order: torch.Generator) -> None:
    """The ordinary loop, and one line for the seeds: their gradients are noted."""
    body.train()
    for batch in torch.randperm(len(data.train_x), generator=order).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(body(data.train_x[batch]), data.train_y[batch]).backward()
        body.record_gradients()
        optimizer.step()


def evaluate(body: esper.Body, data: Digits) -> float:
    """The accuracy of the live network; on the way, what each blended seed contributes to it."""
    everyone = body.blended()
    coalitions = [everyone] + [everyone - {slot} for slot in everyone]
    outputs = body.coalition_outputs(coalitions, data.evaluation_x)
    accuracy = {
        coalition: (output.argmax(1) == data.evaluation_y).float().mean().item()
        for coalition, output in outputs.items()
    }
    body.record_qualities(accuracy)
    return float(accuracy[everyone])


def line(epoch: int, record: Record) -> str:
    """An epoch in words."""
    slots = "  ".join(f"{slot.slot} {slot.stage.name.lower():<10} {slot.alpha:4.2f}" for slot in record.slots)
    return f"epoch {epoch:2d}  accuracy {record.accuracy:6.1%}  parameters {record.parameters:5d}  {slots}"


COLOURS = {Stage.TRAINING: "#f6d55c", Stage.BLENDING: "#7cb5ec", Stage.HOLDING: "#a5d6a7", Stage.FOSSILIZED: "#3c8d5a"}


def draw(grown: list[Record], ungrown: list[Record], path: Path) -> None:
    """Accuracy of both runs above, the stages of each slot shaded below."""
    figure, (curves, stages) = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, height_ratios=[3, 1], dpi=120)
    for records, label, colour in ((grown, "grown", "#3c8d5a"), (ungrown, "not grown", "#999999")):
        name = f"{label}: {records[-1].accuracy:.1%}, {records[-1].parameters:,} parameters"
        curves.plot([100 * record.accuracy for record in records], label=name, color=colour, linewidth=2)
    curves.set(ylabel="evaluation accuracy, %", ylim=(0, 100), title="One host on digits, the same start and batches")
    curves.legend(loc="upper left")
    curves.grid(alpha=0.3)
    for row in range(len(SLOTS)):
        for epoch, record in enumerate(grown):
            if record.slots[row].stage in COLOURS:
                stages.barh(row, 1, left=epoch - 0.5, color=COLOURS[record.slots[row].stage], height=0.8)
    stages.set(yticks=range(len(SLOTS)), yticklabels=SLOTS, xlabel="epoch", ylim=(len(SLOTS) - 0.5, -0.5))
    handles = [Patch(color=colour) for colour in COLOURS.values()]
    names = [stage.name.lower() for stage in COLOURS]
    stages.legend(handles, names, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def picture(text: str) -> Path:
    """A path that a PNG can be written to, checked before the first epoch."""
    path = Path(text)
    if path.suffix != ".png" or path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is not the name of a .png file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{path.parent}' cannot be made: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{path.parent}' cannot be written to")
    return path


def main() -> None:
    """Grow, run the control, draw."""
    parser = argparse.ArgumentParser(description="Grow a small CNN on digits by a fixed schedule.")
    parser.add_argument("--seed", type=int, default=0, help="of initial weights, split and data order (default 0)")
    parser.add_argument("--out", type=picture, default="out/demo.png", help="picture to write (default %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = digits(arguments.seed)
    print(f"growing a host of 1x1 convolutions on {len(data.train_x)} digits, {EPOCHS} epochs, on the CPU")
    grown = []
    for epoch, record in enumerate(run(data, SCHEDULE, arguments.seed)):
        print(line(epoch, record), flush=True)
        grown.append(record)
    print("the same host, the same batches, without growth ...", flush=True)
    ungrown = list(run(data, {}, arguments.seed))
    for name, records in (("grown", grown), ("not grown", ungrown)):
        print(f"{name:>9}: accuracy {records[-1].accuracy:.1%} with {records[-1].parameters:,} parameters")
    draw(grown, ungrown, arguments.out)
    print(f"picture: {arguments.out}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted; no picture was written", file=sys.stderr)
        sys.exit(130)
