"""The command line as a user meets it: a process of its own, with its own state and cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Cli:
    """Runs ``cudnn-doctor`` with state, cache and home below one folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.environ = {
            **{k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")},
            "CUDNN_DOCTOR_STATE": str(base / "state"),
            "CUDNN_DOCTOR_CACHE": str(base / "cache"),
            "HOME": str(base / "home"),
            "NO_PROXY": "127.0.0.1",
            "COLUMNS": "80",
        }

    def command(self, *args: str | Path) -> list[str]:
        """The argument vector of a run."""
        return [sys.executable, "-m", "cudnn_doctor", *map(str, args)]

    def __call__(self, *args: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run it; an exit code other than ``code`` fails the test."""
        done = subprocess.run(
            self.command(*args),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *args: str | Path) -> Any:
        """Run it with ``--json`` and decode what it prints."""
        return json.loads(self(*args, "--json").stdout)


def tree(folder: Path) -> dict[str, str]:
    """Everything under a folder: path -> hash of the contents, link text or '/'."""
    import hashlib

    seen: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            seen[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            seen[name] = "/"
        else:
            seen[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return seen
