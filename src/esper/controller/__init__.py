"""The brain: the network over slots and blueprints, and the policies that play in the environment."""

from esper.controller.constant import BadConstant, Constant
from esper.controller.controls import NoGrowth, RandomLegal
from esper.controller.features import MissingFeature
from esper.controller.heuristic import Heuristic, HeuristicConfig, HeuristicState, InvalidHeuristic
from esper.controller.learned import Learned, exploration_of, load_network, tensors
from esper.controller.network import ControllerNetwork, InvalidNetwork, NetworkConfig
from esper.controller.policy import Arrays, Decision, Policy, decision_for, legal_ops
from esper.controller.schedule import BadSchedule, Schedule, ScheduledSeed, load_schedule, random_schedule
from esper.controller.shipped import SHIPPED, DamagedController, shipped_file
