import pytest
import torch
from hypothesis import settings

# Tests measure facts, not speed, and run two at a time on small machines.
torch.set_num_threads(1)
settings.register_profile("esper", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("esper")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
