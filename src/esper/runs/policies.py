"""Policies by name or by file, for the observations of our environment."""

from esper.controller import Policy
from esper.controller import find_policy as find_policy_for
from esper.environment import FIELDS


def find_policy(spec: str) -> Policy:
    """The policy of that name or file, as `esper.controller.find_policy` finds it."""
    return find_policy_for(spec, FIELDS)
