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
from esper.environment.evaluation import Evaluation, evaluate
from esper.environment.governor import Governor, GovernorConfig, InvalidGovernor
from esper.environment.masks import masks_of
from esper.environment.observation import BLUEPRINT_FEATURES, FIELDS, HOST_FEATURES, SLOT_FEATURES, Feature, observe
from esper.environment.randomness import derive, stream
from esper.environment.task_file import InvalidTaskFile
from esper.environment.tasks import (
    DEFAULT_TASK,
    DuplicateTask,
    InvalidTask,
    Task,
    UnknownTask,
    all_tasks,
    find_task,
    load_task,
    task,
    task_on,
)
from esper.environment.training import Compute, Precision, Probe, Trainer, UnusableDevice, UnusablePrecision
from esper.environment.twins import twin_curve

__all__ = [
    "BLUEPRINT_FEATURES",
    "CIFAR10",
    "DEFAULT_TASK",
    "FASHION_MNIST",
    "FIELDS",
    "HOST_FEATURES",
    "SLOT_FEATURES",
    "SOURCES",
    "Compute",
    "DuplicateTask",
    "Episode",
    "Evaluation",
    "Feature",
    "Governor",
    "GovernorConfig",
    "GrowEnv",
    "HubSet",
    "InvalidGovernor",
    "InvalidTask",
    "InvalidTaskFile",
    "MissingData",
    "MissingLibrary",
    "Outcome",
    "Precision",
    "Probe",
    "Source",
    "Split",
    "Splits",
    "Task",
    "Trainer",
    "UnknownTask",
    "UnreadableData",
    "UnusableDevice",
    "UnusablePrecision",
    "World",
    "WrongSchema",
    "all_tasks",
    "augmented",
    "derive",
    "digits",
    "evaluate",
    "find_task",
    "hub",
    "load_task",
    "masks_of",
    "observe",
    "spirals",
    "stream",
    "task",
    "task_on",
    "twin_curve",
]
