"""What an installation tells while it runs."""

from __future__ import annotations

from typing import Protocol

from cudnn_doctor.install.plan import AnyStep


class Progress(Protocol):
    """Told what happens; prints it or not."""

    def step(self, number: int, total: int, step: AnyStep) -> None:
        """Step ``number`` (from 0) of ``total`` begins."""

    def bytes(self, done: int, total: int | None) -> None:
        """So many bytes of the file under way are there."""

    def ended(self) -> None:
        """No more bytes of it will come."""

    def say(self, text: str) -> None:
        """A message, or the output of a program."""


class Silent:
    """A progress that tells nothing."""

    def step(self, number: int, total: int, step: AnyStep) -> None:
        pass

    def bytes(self, done: int, total: int | None) -> None:
        pass

    def ended(self) -> None:
        pass

    def say(self, text: str) -> None:
        pass
