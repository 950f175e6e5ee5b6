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


class Words(nn.Module):
    """Embeddings, a recurrent layer whose output is a tuple, and perhaps a norm behind it."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.words, self.reader = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.norm, self.head = nn.LayerNorm(12) if norm else None, nn.Linear(12, 3)

    def forward(self, x):
        read = self.reader(self.words(x))[0]
        return self.head((read if self.norm is None else self.norm(read))[:, -1])


def test_an_embedding_is_a_place_only_if_there_is_no_other():
    words = torch.zeros(2, 5, dtype=torch.long)

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.words(x).mean(dim=1))

    assert [place.slot for place in find_places(Bag(), "auto", words).taken] == ["words"]
    assert [place.slot for place in find_places(Words(norm=False), "auto", words).taken] == ["reader"]
    found = find_places(Words(norm=True), "auto", words)
    assert [place.slot for place in found.taken] == ["norm"]
    assert "nothing to grow on yet" in found.left_out["words"]


class Patches(nn.Module):
    """Tokens of a convolution's channels, whose place in front of the first layer shows nothing but that."""

    class Embed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.first = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8))

        def forward(self, x):
            tokens = self.patch(x).flatten(2).transpose(1, 2)
            return torch.cat([self.first.expand(len(x), -1, -1), tokens], dim=1)

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attention = self.Embed(), nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        tokens = self.embed(x)
        return self.head(self.norm(tokens + self.attention(tokens, tokens, tokens)[0])[:, 0])


def test_layers_around_tokens_show_which_axis_has_the_channels():
    found = find_places(Patches(), "auto", torch.randn(2, 3, 8, 8))
    assert [place.slot for place in found.taken] == ["embed", "norm"]


def test_images_as_high_as_they_have_channels_are_images():
    class Depthwise(nn.Module):
        """A block whose last layers take the channels last."""

        def __init__(self) -> None:
            super().__init__()
            self.space, self.norm, self.mix = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x):
            return x + self.mix(self.norm(self.space(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)

    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    found = find_places(
        nn.Sequential(nn.Conv2d(3, 8, 1), Depthwise(), Depthwise(), *head), "auto", torch.randn(2, 3, 8, 8)
    )
    assert [place.slot for place in found.taken] == ["0", "1", "2"]


def test_parts_that_put_out_a_dictionary_are_places():
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return {"features": x}

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = Stack(), Stack(), nn.Linear(12, 3)

        def forward(self, x):
            return self.head(torch.cat([self.one(x)["features"], self.two(x)["features"]], dim=1))

    found = find_places(Both(), "auto", torch.randn(2, 6))
    assert [place.slot for place in found.taken] == ["one", "two"]


def test_a_model_without_places_is_told_why():
    model = nn.Sequential(nn.GRU(4, 6, batch_first=True))
    with pytest.raises(NoPlace, match="0: the model's output"):
        find_places(model, "auto", torch.zeros(2, 5, 4))
    with pytest.raises(NoPlace, match=r"calls no submodules; build it of layers such as nn\.Linear"):
        find_places(nn.Linear(4, 2), "auto", torch.zeros(2, 4))


@pytest.mark.parametrize("at", [3, None, ["0", 1]])
def test_what_are_no_names_is_refused(at):
    with pytest.raises(NoPlace, match="give 'auto', a list of submodule names, or a pattern"):
        find_places(mlp(), at, torch.zeros(2, 6))


def test_a_name_that_is_given_twice_leaves_the_model_alone():
    model = mlp()
    kinds = list(map(type, model.modules()))
    find_places(model, ["1", "1"], torch.zeros(2, 6))
    assert list(map(type, model.modules())) == kinds
