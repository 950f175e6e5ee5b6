"""A harvested network goes where plain networks go: `torch.export`, ONNX, `torch.compile`, a saved directory."""

import io
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import Operator, Stage, Style
from esper.growth import Body
from tests.growth.cases import CASES, CLASSES, THRESHOLDS, Case, grow, optimiser_of


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(dim=1))


class EncoderCase(Case):
    def body(self) -> Body:
        return esper.graft(self.host(), at=self.at, example=self.inputs(2), topology="dense", thresholds=THRESHOLDS)


HOSTS = [
    *(case for case in CASES if case.name in ("conv", "dense", "residual")),
    EncoderCase("encoder", Encoder, ("encoder.layers.0", "encoder.layers.1"), shape=(3, 8), blueprint="mlp"),
]
STYLES = {Operator.ADD: Style.LINEAR_ADD, Operator.MULTIPLY: Style.LINEAR_MULTIPLY, Operator.GATE: Style.GATED}

EVERY_PAIR = [(case, operator) for operator in Operator for case in HOSTS]
every_pair = pytest.mark.parametrize(
    ("case", "operator"), EVERY_PAIR, ids=[f"{operator.name.lower()}-{case.name}" for case, operator in EVERY_PAIR]
)
every_host_and_operator = pytest.mark.parametrize(
    ("case", "operator"),
    [
        pytest.param(
            case,
            operator,
            id=f"{operator.name.lower()}-{case.name}",
            marks=() if place % len(HOSTS) == place // len(HOSTS) or place == len(EVERY_PAIR) - 1 else pytest.mark.slow,
        )
        for place, (case, operator) in enumerate(EVERY_PAIR)
    ],
)
"""Each host and each operator at once; all other pairs with what is slow."""


def harvested(case: Case, operator: Operator) -> nn.Module:
    """With a fossil that shows in the output."""
    body = case.body()
    grow(case, body, optimiser_of(body), case.at[1], Stage.FOSSILIZED, STYLES[operator])
    plain = body.harvest().eval()
    assert not torch.equal(plain(case.inputs()), body.ungraft().eval()(case.inputs()))
    return plain


@every_host_and_operator
def test_exported_network_puts_out_the_same_for_any_batch(case: Case, operator: Operator):
    plain = harvested(case, operator)
    exported = torch.export.export(plain, (case.inputs(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for rows in (2, 7):
        torch.testing.assert_close(exported.module()(case.inputs(rows)), plain(case.inputs(rows)))


@every_host_and_operator
def test_onnx_network_puts_out_the_same_for_any_batch(case: Case, operator: Operator):
    plain = harvested(case, operator)
    program = torch.onnx.export(
        plain, (case.inputs(),), dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False
    )
    content = io.BytesIO()
    program.save(content)
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    for rows in (2, 7):
        (found,) = session.run(None, {session.get_inputs()[0].name: case.inputs(rows).numpy()})
        np.testing.assert_allclose(found, plain(case.inputs(rows)).detach().numpy(), rtol=1e-4, atol=1e-5)


@every_host_and_operator
def test_compiled_network_puts_out_the_same_in_one_graph(case: Case, operator: Operator):
    plain = harvested(case, operator)
    torch.compiler.reset()
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(case.inputs()), plain(case.inputs()))


@every_pair
def test_saved_network_comes_back_to_the_last_bit(case: Case, operator: Operator, tmp_path: Path):
    plain = harvested(case, operator)
    esper.save(plain, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", case.build())
    assert torch.equal(loaded(case.inputs()), plain(case.inputs()))
