"""LD_LIBRARY_PATH of one Python environment: a block in the script that activates it.

Nobody can change the variable of a shell that is running. The activation script can: whoever
activates the environment gets the path that its programs need.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from cudnn_doctor.checks.model import SearchPath
from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install.plan import AnyStep, MakeFolder, WriteFile
from cudnn_doctor.machine.model import Environment

_BEGIN = "# >>> cudnn-doctor: LD_LIBRARY_PATH >>>"
_END = "# <<< cudnn-doctor <<<"
_BLOCK = re.compile(rf"\n?{_BEGIN}\n.*?{_END}\n", re.DOTALL)
_FOLDERS = re.compile(r"^# (without|with): (.*)$", re.MULTILINE)


def plan_path(environment: Environment, wanted: SearchPath) -> list[AnyStep]:
    """Steps that let the activation of ``environment`` set the path.

    Raises DoctorError (NOTHING_CHANGED) where it has no activation script that may be written.
    """
    script = _script(environment)
    old = script.read_text("utf-8", "surrogateescape") if script.is_file() else ""
    told = _FOLDERS.findall("".join(_BLOCK.findall(old)))
    drop = [f for word, folders in told if word == "without" for f in shlex.split(folders)]
    add = [f for word, folders in told if word == "with" for f in shlex.split(folders)]
    drop = [f for f in dict.fromkeys([*drop, *wanted.drop]) if f not in wanted.add]
    add = [f for f in dict.fromkeys([*wanted.add, *add]) if f not in wanted.drop]
    text = _BLOCK.sub("", old) + _block(drop, add)
    mode = script.stat().st_mode & 0o7777 if script.is_file() else 0o644
    write = WriteFile.of(
        f"set LD_LIBRARY_PATH in {script}",
        str(script),
        text.encode("utf-8", "surrogateescape"),
        mode,
    )
    folder = MakeFolder(title=f"make {script.parent}", path=str(script.parent))
    return [write] if script.parent.is_dir() else [folder, write]


def path_with(value: str, wanted: SearchPath) -> str:
    """The variable's value as the block leaves it."""
    kept = [folder for folder in value.split(":") if folder and folder not in wanted.drop]
    return ":".join([*wanted.add, *(folder for folder in kept if folder not in wanted.add)])


def _script(environment: Environment) -> Path:
    prefix = Path(environment.prefix)
    if environment.kind == "conda":
        script = prefix / "etc/conda/activate.d/cudnn-doctor.sh"
    else:
        script = prefix / "bin/activate"
    if environment.kind != "conda" and not script.is_file():
        raise _refused("this environment has no activation script", str(script))
    place = script if script.exists() else prefix
    if not os.access(place, os.W_OK):
        raise _refused("you may not write this environment's activation script", str(script))
    return script


def _block(drop: list[str], add: list[str]) -> str:
    lines = ["", _BEGIN]
    if drop:
        lines.append(f"# without: {shlex.join(drop)}")
        patterns = " ".join(f"-e {shlex.quote(folder.rstrip('/'))}" for folder in drop)
        patterns += " " + " ".join(f"-e {shlex.quote(folder.rstrip('/') + '/')}" for folder in drop)
        lines.append(
            'LD_LIBRARY_PATH=$(printf "%s" "${LD_LIBRARY_PATH:-}" | tr : "\\n" |'
            f" {{ grep -vxF {patterns} || :; }} | paste -sd: -)"
        )
    if add:
        lines.append(f"# with: {shlex.join(add)}")
        joined = shlex.quote(":".join(add))
        lines.append(f'LD_LIBRARY_PATH={joined}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    lines += [
        'if [ -n "$LD_LIBRARY_PATH" ]; then export LD_LIBRARY_PATH; else unset LD_LIBRARY_PATH; fi',
        _END,
        "",
    ]
    return "\n".join(lines)


def _refused(what: str, where: str) -> DoctorError:
    return NothingChanged(
        what,
        where=where,
        next_step="set LD_LIBRARY_PATH where it is set now, or before the program is started",
    )
