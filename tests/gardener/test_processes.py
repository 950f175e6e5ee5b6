"""Two processes train one model."""

import gc
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import esper
from esper.telemetry.query import query
from tests.gardener.loops import EPOCHS, GROWTH, X, Y, evaluate, mlp


def work(rank: int, store: str, garden: str, controller, wrapped_first: bool) -> None:
    """In a process of its own, on rows of its own and with an evaluation of its own."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    torch.manual_seed(rank)
    model = mlp()
    network = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    settings = {"example": X, "epochs": EPOCHS, "controller": controller, "directory": garden}
    gardener = esper.Gardener(network if wrapped_first else model, optimizer, **settings)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        network.train()
        for batch in torch.arange(rank, len(X), 2).split(16):
            optimizer.zero_grad()
            cross_entropy(network(X[batch]), Y[batch]).backward()
            optimizer.step()
        scheduler.step()
        gardener.step(lambda model: evaluate(model) if rank == 0 else {"accuracy": 0.1, "loss": 5.0})
    told = [str(gardener.report()), [slot.state for slot in gardener.body.slots], gardener.harvest().state_dict()]
    everyone = [None, None]
    distributed.all_gather_object(everyone, told)
    (report, states, weights), (other_report, other_states, other_weights) = everyone
    assert report == other_report
    assert states == other_states
    assert weights.keys() == other_weights.keys()
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    assert "planted after epoch 1" in report
    del network, scheduler
    gc.collect()  # a wrapper that outlives its process group makes the process abort at its end
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("controller", [GROWTH, "ranker"], ids=["schedule", "ranker"])
@pytest.mark.parametrize("wrapped_first", [False, True])
def test_two_processes_decide_alike_and_have_the_same_weights(tmp_path: Path, controller, wrapped_first):
    garden = tmp_path / "garden"
    given = (str(tmp_path / "store"), str(garden), controller, wrapped_first)
    multiprocessing.spawn(work, given, nprocs=2)
    _, rows = query(garden, "SELECT count(*) FROM rewards")
    assert rows == [(EPOCHS,)], "one of them writes"
