"""Whether a submodule puts out features, which a slot can be behind."""

from typing import Any

from torch import Tensor, nn

from esper.contracts import LAYOUTS, EsperError, SlotId
from esper.growth.proof import EVALUATION, Example, calls

RANKS = frozenset().union(*(layout.ranks for layout in LAYOUTS.values()))

SUGGESTED = 3
"""Names in a message."""


class NotFeatures(EsperError):
    """The submodule does not put out features."""


def check_features(model: nn.Module, name: SlotId, output: Any, example: Example) -> None:
    """`NotFeatures` unless `output` of the submodule `name` is a tensor of features, or was one's first part.

    The message names submodules that do better.
    """
    if _is_features(output):
        return
    if not isinstance(output, Tensor):
        given = f"a {type(output).__name__}, not a tensor"
    elif output.is_nested:
        raise NotFeatures(
            f"'{name}' puts out a nested tensor in evaluation mode; build nn.TransformerEncoder with "
            "enable_nested_tensor=False"
        )
    else:
        given = f"{output.dtype} of shape {tuple(output.shape)}"
    better = ", ".join(_better(model, name, example)) or "there is none"
    raise NotFeatures(
        f"'{name}' puts out {given}; features are floating-point tensors of shape (batch, channels), (batch, tokens, "
        f"channels) or (batch, channels, height, width); name one that puts out such: {better}"
    )


def _is_features(output: Any) -> bool:
    return (
        isinstance(output, Tensor)
        and not output.is_nested
        and output.is_floating_point()
        and output.ndim in RANKS
        and 0 not in output.shape
    )


def _better(model: nn.Module, name: SlotId, example: Example) -> list[SlotId]:
    """Some submodules that put out features, once in every mode; those that run next after `name` if there are any."""
    lists = nn.ModuleList | nn.ModuleDict  # which would count a witness among their own
    names = [each for each, part in model.named_modules() if each and not isinstance(part, lists)]
    found = calls(model, names, example)
    order = list(found[EVALUATION])
    every_mode = {each: [seen.get(each, []) for seen in found.values()] for each in order}
    fit = [each for each in order if all(len(seen) == 1 and _is_features(seen[0]) for seen in every_mode[each])]
    after = [each for each in fit if order.index(each) > order.index(name)]
    return (after or fit)[:SUGGESTED]
