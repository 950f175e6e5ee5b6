"""Where something can grow, in models of many makes."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from esper.gardener.errors import NoPlace
from esper.gardener.places import MOST_PLACES, find_places
from tests.gardener.loops import mlp


class Block(nn.Module):
    """A residual block whose ReLU runs twice and works in place."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.norm, self.relu = nn.BatchNorm2d(out), nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(channels, out, 1), nn.BatchNorm2d(out))

    def forward(self, x):
        h = self.second(self.relu(self.norm(self.first(x))))
        h += self.down(x)
        return self.relu(h)


class Stages(nn.Module):
    """Four stages of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        widths = (4, 6, 8, 10)
        for index, (channels, out) in enumerate(zip((4, *widths), widths, strict=False)):
            self.add_module(f"stage{index}", nn.Sequential(Block(channels, out), Block(out, out)))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(10, 5)

    def forward(self, x):
        h = self.stage3(self.stage2(self.stage1(self.stage0(self.stem(x)))))
        return self.head(torch.flatten(self.pool(h), 1))


class Functional(nn.Module):
    """Activations and pooling are functions, and so is what comes behind the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.drop = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Dropout()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = functional.max_pool2d(functional.relu(self.conv2(functional.relu(self.conv1(x)))), 2)
        return functional.log_softmax(self.fc2(self.drop(functional.relu(self.fc1(h.mean(dim=(2, 3)))))), dim=1)


class Tokens(nn.Module):
    """A transformer over the patches of an image."""

    def __init__(self, layers: int = 8) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.embed, self.encoder = nn.Linear(5, 8), nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


class Heads(nn.Module):
    """Two heads, whose outputs are changed once more."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Sequential(nn.Linear(5, 8), nn.GELU()), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x):
        h = self.body(x)
        return functional.log_softmax(self.one(h), 1), functional.log_softmax(self.two(h), 1)


def flattened() -> nn.Module:
    parts = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3))
    return nn.Sequential(*parts)


def sequence(channels: int, width: int) -> nn.Module:
    convolutions = nn.Sequential(nn.Conv1d(channels, width, 3), nn.ReLU())
    return nn.Sequential(convolutions, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 8), nn.Linear(8, 3))


CASES = {
    "perceptron": (mlp, (2, 6), ["1", "3"]),
    "stages": (Stages, (2, 3, 8, 8), ["stage0", "stage1", "stage2", "stage3"]),
    "functional": (Functional, (2, 1, 8, 8), ["conv1", "conv2", "fc1"]),
    "tokens": (Tokens, (2, 7, 5), ["encoder.layers.0", "encoder.layers.2", "encoder.layers.4", "encoder"]),
    "heads": (Heads, (2, 5), ["body"]),
    "flattened": (flattened, (2, 1, 10, 10), ["3"]),
    "conv1d": (lambda: sequence(2, 6), (2, 2, 9), ["2", "3"]),
}


@pytest.mark.parametrize(("build", "shape", "expected"), CASES.values(), ids=CASES)
def test_places_are_the_ends_of_blocks_and_never_an_output(build, shape, expected):
    model = build()
    keys, kinds = list(model.state_dict()), list(map(type, model.modules()))
    found = find_places(model, "auto", torch.randn(shape))
    assert [place.slot for place in found.taken] == expected
    assert len(found.taken) <= MOST_PLACES
    assert not set(expected) & set(found.left_out)
    assert (list(model.state_dict()), list(map(type, model.modules()))) == (keys, kinds)


@pytest.mark.parametrize(
    ("build", "shape", "name", "reason"),
    [
        (mlp, (2, 6), "4", "the model's output"),
        (Stages, (2, 3, 8, 8), "stage2.0", "one of 9 places, of which 4 are enough"),
        (Heads, (2, 5), "one", "an output: no other layer reads it"),
        (lambda: sequence(2, 6), (2, 2, 9), "0", "has its channels in the middle axis"),
        (lambda: sequence(2, 6), (2, 2, 9), "4", "the model's output"),
    ],
)
def test_what_is_left_out_has_a_reason(build, shape, name, reason):
    assert reason in find_places(build(), "auto", torch.randn(shape)).left_out[name]


def test_a_pattern_names_all_that_match():
    found = find_places(Stages(), "stage[13]", torch.randn(2, 3, 8, 8))
    assert [place.slot for place in found.taken] == ["stage1", "stage3"]


def test_a_model_without_places_is_told_why():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.reader, self.head = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.reader(self.words(x))[0][:, -1])

    with pytest.raises(
        NoPlace, match=r"reader: puts out shape \(2, 5, 6\), which does not show which axis has the channels"
    ):
        find_places(Recurrent(), "auto", torch.zeros(2, 5, dtype=torch.long))
