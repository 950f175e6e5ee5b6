"""The brain: the network over slots and blueprints, and the policies that play in the environment."""

from esper.controller.constant import BEST_BY_RENT, BadConstant, Constant, ConstantByRent
from esper.controller.controls import NoGrowth, RandomLegal
from esper.controller.features import MissingFeature
from esper.controller.gain_networks import (
    GROUPS,
    INPUTS,
    SEED_INPUTS,
    BadRanker,
    GainNetworks,
    inputs_of,
    load_gain_networks,
    measured,
    networks_to_bytes,
)
from esper.controller.heuristic import Heuristic, HeuristicConfig, HeuristicState, InvalidHeuristic
from esper.controller.learned import Learned, exploration_of, load_network, tensors
from esper.controller.network import ControllerNetwork, InvalidNetwork, NetworkConfig
from esper.controller.policies import CONTROLS, UnknownPolicy, file_of, find_policy
from esper.controller.policy import Arrays, Decision, Policy, decision_for, legal_ops, rent_in, size_in
from esper.controller.ranker import Ranker
from esper.controller.schedule import BadSchedule, Schedule, ScheduledSeed, load_schedule, random_schedule
from esper.controller.seed_keeper import SeedKeeper
from esper.controller.shipped import RANKER, SHIPPED, DamagedController, shipped_file
