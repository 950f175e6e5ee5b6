"""The mistakes that can be made with a gardener."""

from esper.contracts import EsperError


class BadSetting(EsperError):
    """A setting of the gardener lies outside its range."""


class NoPlace(EsperError):
    """The model has no place where anything could grow."""


class ForeignOptimizer(EsperError):
    """The optimiser does not train this model, or cannot train what grows in it."""


class NoScore(EsperError):
    """An evaluation did not say how good the model is."""


class NotFraction(EsperError):
    """A score is not on the scale that it is said to be on."""


class TooManySteps(EsperError):
    """The gardener was told of more epochs than there were to be."""


class WrongState(EsperError):
    """A saved gardener does not fit this one."""
