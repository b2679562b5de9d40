"""Modules in child processes: like ``python -m``, but nothing is imported from the current folder.

``-m`` and ``-c`` put that folder first on the search path. Whoever runs this tool as root in a
folder of another (``/tmp``) would run a ``typer.py`` or ``pip.py`` that lies there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_START = (
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]; import runpy; "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def running(module: str, python: str = sys.executable) -> tuple[str, ...]:
    """The words of a command that runs a module as ``__main__``; its arguments follow them."""
    return (python, "-c", _START.format(module=module))


def apart(argv: Sequence[str]) -> tuple[str, ...]:
    """A command, but where it is ``PYTHON -m MODULE ...`` started as `running` does it."""
    if len(argv) > 2 and argv[1] == "-m":
        return (*running(argv[2], argv[0]), *argv[3:])
    return tuple(argv)
