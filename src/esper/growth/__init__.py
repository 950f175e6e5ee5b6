"""The body: hosts with slots in which seeds germinate, train, blend and are kept or removed."""

from esper.growth.accounting import Cost, Costs, count_flops, count_parameters, newborn_cost
from esper.growth.alpha import AlphaSchedule
from esper.growth.architecture import DamagedNetwork, UnknownSchema
from esper.growth.blueprints import (
    Blueprint,
    DuplicateBlueprint,
    UnknownBlueprint,
    blueprint,
    blueprints_for,
    find_blueprint,
    last_zero,
)
from esper.growth.body import Body, NotMeasurable, UnknownSlot
from esper.growth.caches import LooksBack, UnusableCache
from esper.growth.causal import UnknownMask
from esper.growth.coalitions import Coalition, UnknownCoalition, evaluating
from esper.growth.directory import TargetExists
from esper.growth.gates import InvalidThresholds, Thresholds, judge, ready
from esper.growth.gpt import ContextTooLong, GPTHost, GPTShape, InvalidShape
from esper.growth.graft import AlreadyGrafted, NotFeatures, SharedModule, UnknownModule, graft
from esper.growth.harvest import Fossil, Grown, plant
from esper.growth.hosts import ACTIVATIONS, POOLINGS, ConvHost, ConvShape, DenseHost, DenseShape
from esper.growth.lifecycle import IllegalTransition
from esper.growth.loading import DoesNotFit, load
from esper.growth.persistence import InvalidCheckpoint
from esper.growth.saving import NotSavable, save
from esper.growth.slot import Site, Slot
