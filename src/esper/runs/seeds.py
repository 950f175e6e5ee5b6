"""Which episode seeds are for what: the ranges never meet, so nothing is judged on what it was trained on.

| range | for |
|---|---|
| 0 to 499,999 | exams: held out from training and from choosing a checkpoint |
| 500,000 to 599,999 | evaluation during training; the best checkpoint is chosen on these |
| 600,000 to 699,999 | the comparison at the end of a run |
| 700,000 to 799,999 | the search for the best schedule, against which an exam compares |
| from 1,048,576 | training |
"""

from esper.environment import derive

EXAM_SEEDS = range(500_000)
EVALUATION_SEEDS = range(500_000, 600_000)
COMPARISON_SEEDS = range(600_000, 700_000)
SEARCH_SEEDS = range(700_000, 800_000)
TRAINING_SEEDS = range(2**20, 2**31)


def training_seed(run_seed: int, round_number: int, place: int) -> int:
    """The seed of one training episode.

    >>> training_seed(0, 1, 2) == training_seed(0, 1, 2), training_seed(0, 1, 2) == training_seed(0, 2, 2)
    (True, False)
    """
    return TRAINING_SEEDS[derive(run_seed, "train", round_number, place) % len(TRAINING_SEEDS)]
