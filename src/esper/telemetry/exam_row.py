"""One policy on one seed: what an exam is made of."""

import math
import sys
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from esper.contracts import UNITS

LARGEST = 2**63 - 1
"""What an integer of a Parquet file can hold."""

Name = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=r"\A[^\ud800-\udfff]*\Z")]
"""As long as a path can be, of characters that UTF-8 can hold."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Size = Annotated[int, Meta(ge=1, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


@dataclass(frozen=True)
class ExamRow:
    """The end of one episode, and what it took to get there. Quality is what the task's metric makes of its score."""

    task: Name
    policy: Name
    """As it is called in the report."""
    seed: Count
    rent: Amount
    """Quality that growing by a factor e must bring to pay."""
    judged_by: Name
    """The metric: accuracy, which is the quality itself, or the unit in which the loss is told."""
    quality: Fraction
    """On the test split, at the end."""
    loss: Amount
    """On the test split, at the end, in nats."""
    evaluation_quality: Fraction
    """On the evaluation split, at the end."""
    area: Fraction
    """Mean evaluation quality over all epochs."""
    host_parameters: Size
    parameters: Size
    """Of everything at the end, host included."""
    training_flops: Amount
    """Of all forward and backward passes of the host's training."""
    inference_flops: Amount
    """Of one input at the end."""
    rollbacks: Count
    seconds: Amount
    kept: str = ""
    """What grew and was kept, as in 'block0 conv_heavy, block2 norm'."""
    token_size: Annotated[float, Meta(gt=0, le=sys.float_info.max)] = 1.0
    """How much of what `judged_by` counts a token of the test split stands for, such as 3.1 bytes."""

    @property
    def growth(self) -> float:
        """Total over host parameters."""
        return self.parameters / self.host_parameters

    @property
    def told(self) -> float:
        """The metric on the test split, in its own unit: an accuracy as a fraction, or so many bits per character."""
        unit = UNITS.get(self.judged_by)
        return self.quality if unit is None else unit.tell(self.loss, self.token_size)

    @property
    def score(self) -> float:
        """Quality minus rent: what a controller is trained for, on the test split."""
        return self.quality - self.rent * math.log(self.growth)
