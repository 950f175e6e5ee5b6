"""Growth in somebody else's training loop."""

from esper.gardener.errors import (
    BadSetting,
    ForeignOptimizer,
    NoPlace,
    NoScore,
    NotFraction,
    TooManySteps,
    WrongState,
)
from esper.gardener.gardener import Gardener
from esper.gardener.plan import GrowthPlan, PlannedPlace
from esper.gardener.progress import Progress
from esper.gardener.report import Life, NoGarden, Report, report_in, report_of
from esper.growth.proof import BadExample
