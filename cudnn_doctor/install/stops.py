"""Ctrl-C, SIGTERM and a closed terminal stop a run only where all can be undone afterwards."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stops:
    """While this is entered such a signal is noted; inside `allowed`, and once, it raises
    KeyboardInterrupt. What is ignored (nohup) stays so."""

    def __init__(self) -> None:
        self._allowed = self._wanted = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            wanted = [n for n in _NUMBERS if signal.getsignal(n) not in (signal.SIG_IGN, None)]
            self._old = {number: signal.signal(number, self._came) for number in wanted}
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._old)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Here a run may stop, at once if a stop was wanted before."""
        try:
            self._allowed = True
            if self._wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _came(self, *_: object) -> None:
        self._wanted = True
        if self._allowed:
            self._allowed = False
            raise KeyboardInterrupt


@contextlib.contextmanager
def unstoppable() -> Iterator[None]:
    """Nothing stops this, nor the programs that it starts."""
    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        known = [number for number in _NUMBERS if signal.getsignal(number) is not None]
        old = {number: signal.signal(number, signal.SIG_IGN) for number in known}
    try:
        yield
    finally:
        _restore(old)


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
