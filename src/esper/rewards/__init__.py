"""What growth is worth: attribution from a coalition table, and rewards as sums of named terms."""

from esper.rewards.attribution import IncompleteTable, NotAPair, Table, contribution, gain, interaction, shapley, shares
from esper.rewards.config import CrashPays, InvalidRewardConfig, ProxyTooHeavy, RewardConfig
from esper.rewards.modes import (
    TERMS_OF,
    MissingTwin,
    Mode,
    Reward,
    UnknownMode,
    find_mode,
    needs_twin,
    potential,
    reward,
)
from esper.rewards.moment import Ending, InvalidMoment, Moment, Twin
from esper.rewards.terms import TERMS, Term, TermName
from esper.rewards.transition import Transition
