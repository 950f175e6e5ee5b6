"""Where episodes are played: in this process, in worker processes, or on a ray cluster, with the same results.

A round is a map over jobs. An episode is a pure function of weights, task and seed, so that a backend may play jobs
anywhere, in any order and more than once. All of them play with one torch thread, because sums over more threads end
in other last digits.
"""

from esper.runs.backends.backend import (
    Backend,
    BadWorkers,
    EpisodeFailed,
    EpisodeLost,
    NoWeights,
    NoWorkers,
    Weights,
    usable_cores,
)
from esper.runs.backends.choice import BACKENDS, DEFAULT_TIMEOUT, UnknownBackend, make_backend
from esper.runs.backends.process import ProcessBackend
from esper.runs.backends.ray import BadGpus, DifferentVersions, MissingRay, NoCluster, RayBackend
from esper.runs.backends.serial import SerialBackend, one_thread
