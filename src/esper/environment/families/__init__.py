"""Families of tasks: tables of ranges, and kinds of data and hosts to draw from them."""

from esper.environment.families import hub, images, plane, tabular
from esper.environment.families.family import FAMILIES, MOST_SEEDS, Family, InvalidTaskSeed
from esper.environment.families.kinds import DATA_KINDS, DataKind, DataSpec
from esper.environment.families.ranges import Choice, Draws, Log, Range, Span
from esper.environment.families.table import Ranges
