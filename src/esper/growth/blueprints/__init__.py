"""What can germinate: blueprints by topology, registered with a decorator."""

from esper.growth.blueprints import cnn, dense, transformer
from esper.growth.blueprints.registry import (
    Blueprint,
    DuplicateBlueprint,
    UnknownBlueprint,
    blueprint,
    blueprints_for,
    find_blueprint,
    last_zero,
)
