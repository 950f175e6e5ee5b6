"""Who looks on while many episodes are played."""

from typing import Protocol


class Watcher(Protocol):
    """Is told how an exam or a survey goes on."""

    def stage(self, title: str, total: int, done: int) -> None: ...
    def advance(self) -> None: ...
    def note(self, sentence: str) -> None: ...
