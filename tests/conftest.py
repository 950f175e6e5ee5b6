from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine on which `torch.compile` finds no C++ compiler and nothing that was compiled before."""
    from torch._inductor import config  # only the tests that compile pay for this import

    torch.compiler.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with config.patch({"cpp.cxx": (None, str(tmp_path / "no-such-compiler"))}):
        yield
    torch.compiler.reset()
