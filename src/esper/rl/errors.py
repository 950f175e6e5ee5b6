"""Mistakes of whoever uses the learner."""


class RLError(ValueError):
    """Something was given that the learner cannot work with; nothing was changed."""


class DiscountMismatch(RLError):
    """The environment shapes its rewards for another discount than the learner's."""


class EmptyMask(RLError):
    """A mask that allows nothing."""


class NonFinite(RLError):
    """A number that is NaN or infinite."""


class WrongShape(RLError):
    """An array, a mask or a choice of another shape than the network's."""


class BufferFull(RLError):
    """An episode that is longer than the room made for it."""


class NoSteps(RLError):
    """Nothing to learn from."""


class OpenRow(RLError):
    """A row that stops in the middle of an episode and does not say what the rest is worth."""


class IllegalChoice(RLError):
    """A recorded decision that the masks recorded with it do not allow."""
