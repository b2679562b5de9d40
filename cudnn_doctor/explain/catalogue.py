"""The authored data of the room: signatures (one YAML file a product family) and diagnoses."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cudnn_doctor.explain.model import Signature

_HERE = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is always true of one diagnosis."""

    title: str
    avoid: tuple[str, ...] = ()
    """Folklore that makes it worse."""
    ask: tuple[str, ...] = ()
    """Commands whose output confirms or excludes it."""


def read_yaml(path: Path) -> Any:
    """Parse one of our own YAML files."""
    return yaml.load(path.read_bytes(), _LOADER)  # noqa: S506 - a safe loader


@lru_cache(maxsize=1)
def load_signatures() -> tuple[Signature, ...]:
    """All signatures, in order of file names."""
    return tuple(
        msgspec.convert(record, Signature)
        for path in sorted((_HERE / "signatures").glob("*.yaml"))
        for record in read_yaml(path)
    )


@lru_cache(maxsize=1)
def load_diagnoses() -> dict[str, About]:
    """Id -> what is known about it."""
    return msgspec.convert(read_yaml(_HERE / "diagnoses.yaml"), dict[str, About])
