"""How a policy learns: recurrent PPO with masks and factored heads; knows nothing of growth."""

from esper.rl.acting import MOOD, Acted, Draw, Replayed, act, likeliest, replay, value_of
from esper.rl.categorical import chosen, entropy, log_probabilities, require_choice, sample
from esper.rl.checkpoint import VERSION as CHECKPOINT_VERSION
from esper.rl.checkpoint import (
    BadCheckpoint,
    Checkpoint,
    OldCheckpoint,
    export_checkpoint,
    load_checkpoint,
    require_same_schema,
    require_same_weights,
    restore,
    restore_weights,
    save_checkpoint,
    upgrade_checkpoint,
)
from esper.rl.config import PPOConfig
from esper.rl.decision_judge import DecisionJudge
from esper.rl.environments import NoEnvironment, SharedEnvironment
from esper.rl.episodes import Contents, Episodes, EpisodesInMemory, returns_to_go
from esper.rl.errors import (
    BufferFull,
    DiscountMismatch,
    EmptyMask,
    IllegalChoice,
    NonFinite,
    NoSteps,
    OpenRow,
    RLError,
    WrongShape,
)
from esper.rl.estimate import ImportanceEstimate, importance_estimate
from esper.rl.extremes import StepRatio, extreme_ratios
from esper.rl.gae import advantages, normalised
from esper.rl.gaussian import Gaussian
from esper.rl.gaussian_network import GaussianNetwork
from esper.rl.imitation import Imitation, ImitationConfig, ImitationPass, Likeness, likeness, surprise
from esper.rl.iql import IQL, IQLConfig, IQLStep
from esper.rl.learner import Counters, Learner
from esper.rl.loss import Loss, Targets, ppo_loss
from esper.rl.memory import Memory, MemoryState, NoMemory
from esper.rl.memory_gated import GRUMemory, LSTMMemory
from esper.rl.memory_kinds import MEMORIES, make_memory
from esper.rl.memory_linear import LinearMemory
from esper.rl.metrics import HeadMetrics, UpdateMetrics
from esper.rl.network import Critic, Encoded, Inputs, Network, Observation, VectorConfig, VectorNetwork, orthogonal, pin
from esper.rl.normalise import Moments
from esper.rl.observations import UnsupportedSpace
from esper.rl.ppo import PPO
from esper.rl.progress import LearningProgress
from esper.rl.sequences import Buffer, Sequences, join
from esper.rl.typical import Typical
