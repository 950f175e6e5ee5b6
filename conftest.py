"""What examples in the documentation register is gone when they are over."""

from collections.abc import Iterator

import pytest

from esper.growth.blueprints import registry


@pytest.fixture(autouse=True)
def _own_blueprints() -> Iterator[None]:
    before = {topology: dict(known) for topology, known in registry._REGISTRY.items()}
    yield
    registry._REGISTRY.update(before)
