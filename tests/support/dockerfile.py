"""Dockerfile lines (RUN with a here-document, ENV) carried out in a root folder, without Docker."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support import roots

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INSTRUCTION = re.compile(
    r"^(?:RUN <<'(?P<end>\w+)'\n(?P<script>.*?)^(?P=end)$|ENV (?P<name>\w+)=(?P<value>[^\n]*)$)",
    re.MULTILINE | re.DOTALL,
)


def build(
    text: str, root: Path | roots.Overlay, arguments: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """Carry the lines out in order; ``arguments`` are variables of the build alone.

    Returns the image's variables and the output. Raises CalledProcessError where a RUN fails, and
    AssertionError for an instruction that is not known here.
    """
    rest = _INSTRUCTION.sub("", text)
    assert not [line for line in rest.splitlines() if line.strip() and not line.startswith("#")]
    image = {"PATH": _PATH}
    output = ""
    for found in re.finditer(_INSTRUCTION, text):
        if found["name"]:
            lookup = re.sub(r"\$(\w+)", lambda name: image.get(name[1], ""), found["value"])
            image[found["name"]] = lookup
        else:
            output += run(found["script"], root, {**arguments, **image})
    return image, output


def run(script: str, root: Path | roots.Overlay, environ: Mapping[str, str]) -> str:
    """Run a script by ``/bin/sh`` in ``root``; returns its output."""
    output: str = roots.inside(root, _shell, script, dict(environ))
    return output


def _shell(script: str, environ: dict[str, str]) -> str:
    os.chdir("/")
    done = subprocess.run(
        ["/bin/sh"],
        input=script,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, "/bin/sh", done.stdout)
    return done.stdout
