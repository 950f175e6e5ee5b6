"""One policy on one seed: what an exam is made of."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ExamRow:
    """The end of one episode, and what it took to get there. Accuracies are fractions."""

    task: str
    policy: str
    """As it is called in the report."""
    seed: int
    accuracy: float
    """On the test split, at the end."""
    evaluation_accuracy: float
    """On the evaluation split, at the end."""
    area: float
    """Mean evaluation accuracy over all epochs."""
    host_parameters: int
    parameters: int
    """Of everything at the end, host included."""
    training_flops: float
    """Of all forward and backward passes of the host's training, shadow passes included."""
    inference_flops: float
    """Of one input at the end."""
    rollbacks: int
    seconds: float
    kept: str = ""
    """What grew and was kept, as in 'block0 conv_heavy, block2 norm'."""

    @property
    def growth(self) -> float:
        """Total over host parameters."""
        return self.parameters / self.host_parameters

    def score(self, rent: float) -> float:
        """Accuracy minus rent: what a controller is trained for, on the test split."""
        return self.accuracy - rent * math.log(self.growth)
