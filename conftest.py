"""What examples in the documentation register is gone when they are over."""

from collections.abc import Iterator

import pytest

from esper.growth.blueprints import registry

collect_ignore = [f"src/esper/gardener/{name}.py" for name in ("huggingface", "lightning")]
"""Without examples in their docstrings; their imports take seconds in every process that collects tests."""


@pytest.fixture(autouse=True)
def _own_blueprints() -> Iterator[None]:
    before = {topology: dict(known) for topology, known in registry._REGISTRY.items()}
    yield
    registry._REGISTRY.update(before)
