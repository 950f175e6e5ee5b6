"""The kinds of memory, by name."""

from collections.abc import Callable

from esper.rl.errors import RLError
from esper.rl.memory import Memory, NoMemory
from esper.rl.memory_gated import GRUMemory, LSTMMemory
from esper.rl.memory_linear import LinearMemory

MEMORIES: dict[str, Callable[[int, int], Memory]] = {"linear": LinearMemory, "lstm": LSTMMemory, "gru": GRUMemory}


def require_kind(kind: str) -> None:
    """Refuse a kind that is not there."""
    if kind not in MEMORIES:
        raise RLError(f"memory_kind = '{kind}'; choose one of {', '.join(MEMORIES)}")


def make_memory(kind: str, inputs: int, size: int) -> Memory:
    """A memory of `size` features; none at all for size 0."""
    require_kind(kind)
    return MEMORIES[kind](inputs, size) if size else NoMemory(inputs)
