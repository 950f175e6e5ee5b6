"""Our own language model: a compact GPT whose blocks a slot can be behind, as can their attention and their MLP."""

from collections import OrderedDict
from dataclasses import asdict, dataclass

from torch import Tensor, nn
from torch.nn import functional

from esper.contracts import EsperError

SCALE = 0.02
"""Deviation of newborn weights: embeddings are the head's too, and first guesses are then nearly even."""


class InvalidShape(EsperError):
    """Sizes that no network can have."""


@dataclass(frozen=True)
class GPTShape:
    """A language model: so many layers of that width, whose attention has so many heads, over `context` tokens.

    >>> GPTShape(layers=2, width=48, heads=5)
    Traceback (most recent call last):
    ...
    esper.growth.gpt.InvalidShape: width = 48 cannot be shared among heads = 5; give a width that they divide
    """

    layers: int = 2
    width: int = 48
    heads: int = 4
    context: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 1 <= value <= 65_536:
                raise InvalidShape(f"{name} = {value}; give a whole number from 1 to 65536")
        if self.width % self.heads:
            raise InvalidShape(
                f"width = {self.width} cannot be shared among heads = {self.heads}; give a width that they divide"
            )


class ContextTooLong(EsperError):
    """More tokens than a model has positions for."""


class Embedding(nn.Module):
    """Tokens (B, T) as features (B, T, width), each with its position added."""

    def __init__(self, vocabulary: int, shape: GPTShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        given, known = tokens.shape[1], self.positions.num_embeddings
        if given > known:
            raise ContextTooLong(f"there are {given} tokens in a row, and this model has {known} positions; give fewer")
        features: Tensor = self.tokens(tokens) + self.positions.weight[:given]
        return features


class SelfAttention(nn.Module):
    """Every position gathers from itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.asked = nn.Linear(width, 3 * width)
        self.told = nn.Linear(width, width)
        self.heads = heads

    def forward(self, h: Tensor) -> Tensor:
        batch, tokens, width = h.shape
        asked = self.asked(self.norm(h)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = asked.permute(2, 0, 3, 1, 4)
        gathered = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        told: Tensor = self.told(gathered.transpose(1, 2).reshape(batch, tokens, width))
        return told


class Layer(nn.Module):
    """A layer, which adds to the features what its attention and then its MLP make of them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        wide = nn.Linear(width, 4 * width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), wide, nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attention(h)
        features: Tensor = h + self.mlp(h)
        return features


class WordScores(nn.Module):
    """Scores (B, T, vocabulary) of the token that comes next, by the embeddings of all."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embedding.embedding_dim)
        self.weight = embedding.weight

    def forward(self, h: Tensor) -> Tensor:
        return functional.linear(self.norm(h), self.weight)


class GPTHost(nn.Sequential):
    """From tokens (B, T) to scores (B, T, vocabulary) of those that come next.

    Parts are named `embedding`, `block0`, `block1`, …, which have an `attention` and an `mlp`, and `head`.
    """

    def __init__(self, vocabulary: int, shape: GPTShape) -> None:
        embedding = Embedding(vocabulary, shape)
        parts: OrderedDict[str, nn.Module] = OrderedDict(embedding=embedding)
        for index in range(shape.layers):
            parts[f"block{index}"] = Layer(shape.width, shape.heads)
        parts["head"] = WordScores(embedding.tokens)
        super().__init__(parts)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=SCALE)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
