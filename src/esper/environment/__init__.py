"""The world: data, tasks, hosts that train, a governor, and the `gymnasium` environment `esper/Grow-v0`."""

from esper.environment.data import (
    CIFAR10,
    FASHION_MNIST,
    SOURCES,
    HubSet,
    MissingData,
    MissingLibrary,
    Source,
    Split,
    Splits,
    UnreadableData,
    WrongSchema,
    augmented,
    digits,
    hub,
    spirals,
)
from esper.environment.env import GrowEnv
from esper.environment.episode import Episode, Outcome, World
from esper.environment.evaluation import Evaluation, FunctionJudge, Judge, SplitJudge, Worth, evaluate
from esper.environment.families import DATA_KINDS, FAMILIES, DataKind, DataSpec, Family, InvalidTaskSeed, Ranges
from esper.environment.governor import Governor, GovernorConfig, InvalidGovernor
from esper.environment.masks import masks_of
from esper.environment.observation import BLUEPRINT_FEATURES, FIELDS, HOST_FEATURES, SLOT_FEATURES, Feature, observe
from esper.environment.observer import Observation, Observer
from esper.environment.randomness import derive, stream
from esper.environment.task_file import InvalidTaskFile
from esper.environment.task_names import (
    FAMILY,
    UnknownTask,
    find_family,
    find_task,
    is_drawn,
    is_family,
    load_task,
    stem_of,
    task_in_episode,
)
from esper.environment.tasks import (
    DEFAULT_TASK,
    DuplicateTask,
    InvalidTask,
    Optimizer,
    Task,
    all_tasks,
    task,
    task_on,
)
from esper.environment.training import Compute, Precision, Probe, Trainer, UnusableDevice, UnusablePrecision
from esper.environment.twins import twin_curve
