"""How a policy learns: masked choices and advantages; knows nothing of growth."""

from esper.rl.categorical import EmptyMask, chosen, entropy, log_probabilities, require_choice, sample
from esper.rl.gae import advantages, normalised

__all__ = [
    "EmptyMask",
    "advantages",
    "chosen",
    "entropy",
    "log_probabilities",
    "normalised",
    "require_choice",
    "sample",
]
