"""Output formats of ``check`` and ``verify``: every module here is one, named as the format.

A format is a function ``render(run) -> str`` in a file of its own; nothing else is to be told. A
module may also have ``afterwards(run, environ)``, for what a continuous-integration system wants
in another place than on the standard output.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_doctor.report.outcomes import Run


def names() -> list[str]:
    """All formats; text first, the others sorted."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return ["text", *(name for name in found if name != "text")]


def render(name: str, run: Run) -> str:
    """The run in one format, with its final newline. ``name`` is one of `names`."""
    text: str = importlib.import_module(f"{__name__}.{name}").render(run)
    return text


def afterwards(name: str, run: Run, environ: Mapping[str, str]) -> None:
    """Write what a format has besides its text."""
    module = importlib.import_module(f"{__name__}.{name}")
    if hasattr(module, "afterwards"):
        module.afterwards(run, environ)
