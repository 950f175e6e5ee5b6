"""Features are found in outputs of many kinds, and arguments by their names."""

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import Action, Op
from esper.growth.interface import Call, features_in, parameters_of, with_features

H = torch.ones(2, 4)


class Pair(NamedTuple):
    features: Tensor
    more: int


OUTPUTS: list[Any] = [H, (H, 1), [H, 1], Pair(H, 1), OrderedDict(features=H, more=1)]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: type(output).__name__)
def test_features_are_exchanged_and_the_rest_stays(output):
    assert features_in(output) is H
    assert with_features(output, H) is output
    changed = with_features(output, H + 1)
    assert type(changed) is type(output)
    assert torch.equal(features_in(changed), H + 1)
    assert features_in(output) is H
    if not isinstance(output, Tensor):
        assert list(changed.values() if isinstance(changed, dict) else changed)[1] == 1


@pytest.mark.parametrize("wrap", [lambda h: (h, 1), lambda h: [h, 1], lambda h: Pair(h, 1), lambda h: {"h": h, "n": 1}])
def test_a_slot_grows_behind_a_submodule_that_puts_out_more(wrap):
    class Inner(nn.Module):
        def forward(self, h: Tensor) -> Any:
            return wrap(h)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.head = nn.Linear(3, 4), Inner(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h, number = _both(self.inner(self.stem(x)))
            assert number == 1
            return self.head(h)

    x = torch.randn(5, 3)
    body = esper.graft(Outer(), at=["inner"], example=x)
    before = body(x)
    assert body.execute(Action(Op.GERMINATE, "inner", blueprint="mlp"))
    nn.init.ones_(body.slot("inner").seed_parameters[-1])
    assert not torch.equal(body(x), before)
    torch.testing.assert_close(body(x), before + body.host.head.weight.sum(dim=1))


def _both(output: Any) -> tuple[Tensor, int]:
    return tuple(output.values()) if isinstance(output, dict) else tuple(output)


def test_arguments_are_found_and_replaced_by_name():
    class Part(nn.Module):
        def forward(self, h: Tensor, mask: Any = None, cache: Any = None, **others: Any) -> Tensor:
            return h

    names = parameters_of(Part())
    assert names == ("h", "mask", "cache", "others")
    for call in (
        Call((H, "m", "c")),
        Call((H,), {"mask": "m", "cache": "c"}),
        Call((), {"h": H, "mask": "m", "cache": "c"}),
    ):
        assert call.value("cache", names) == "c"
        assert call.replaced("cache", None, names).value("cache", names) is None
        assert call.replaced("cache", None, names).value("mask", names) == "m"
        assert call.on(H + 1, names).value("h", names) is not H
        assert call.value("nothing", names) is None
    assert Call().on(H, names).args == (H,)
    rows = Call((H, {"deep": [torch.zeros(2, 3), torch.zeros(1, 3)]})).first_rows(1, of=2)
    assert [tuple(each.shape) for each in rows.args[1]["deep"]] == [(1, 3), (1, 3)]
