"""A .deb again of an installed package."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cudnn_doctor.install.packages.manager import output_of

_OF_THE_DATABASE = re.compile(r"^(?:Status|Conffiles|Config-Version):.*\n(?: .*\n)*", re.M)


def describe(name: str, tree: Path) -> None:
    """Write the control files of an installed package into the tree of its files."""
    control = tree / "DEBIAN"
    control.mkdir(mode=0o755)
    text = output_of(("dpkg-query", "--status", name))
    (control / "control").write_bytes(os.fsencode(_OF_THE_DATABASE.sub("", text)))
    for file in output_of(("dpkg-query", "--control-list", name)).split():
        script = control / file
        script.write_bytes(os.fsencode(output_of(("dpkg-query", "--control-show", name, file))))
        script.chmod(0o755)


def build(tree: Path, target: str) -> str:
    """Build ``target`` with the suffix of its kind; returns that path."""
    path = f"{target}.deb"
    output_of(("dpkg-deb", "-Znone", "--build", str(tree), path))
    return path
