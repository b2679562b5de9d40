"""Runs a composite GitHub action's steps as the runner does: contexts, expressions, files.

Only what an action of ours may use is understood; anything else in an expression is an error.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<sign>==|!=|&&|\|\||!|\(|\)|,)|(?P<name>[\w*.-]+))"
)


@dataclass
class Outcome:
    """What became of the action."""

    failed: bool = False
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    used: list[dict[str, Any]] = field(default_factory=list)
    """Steps that use another action, with their expanded inputs."""
    ran: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def annotations(self) -> list[str]:
        return [line for line in self.log.splitlines() if re.match(r"::(error|warning) ", line)]


class Runner:
    """A runner with a workspace and a temporary folder."""

    def __init__(self, base: Path, environ: Mapping[str, str]) -> None:
        self.base = base
        self.workspace, self.temp = base / "workspace", base / "temp"
        for folder in (self.workspace, self.temp):
            folder.mkdir(exist_ok=True)
        self.environ = dict(environ)

    def run(
        self,
        action: Path,
        inputs: Mapping[str, str],
        environs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Outcome:
        """Run the action's steps; ``environs`` are further variables for single steps."""
        described = yaml.safe_load((action / "action.yml").read_text())
        unknown = set(inputs) - set(described["inputs"])
        assert not unknown, unknown
        given = {name: str(d.get("default", "")) for name, d in described["inputs"].items()}
        context: dict[str, Any] = {
            "inputs": {**given, **inputs},
            "runner": {"temp": str(self.temp), "os": "Linux", "arch": "X64"},
            "github": {"action_path": str(action), "workspace": str(self.workspace)},
            "steps": {},
        }
        outcome = Outcome()
        for number, step in enumerate(described["runs"]["steps"]):
            self._step(step, number, action, context, outcome, environs or {})
        for name, output in described["outputs"].items():
            outcome.outputs[name] = self.expand(output["value"], context, outcome)
        return outcome

    def _step(
        self,
        step: dict[str, Any],
        number: int,
        action: Path,
        context: dict[str, Any],
        outcome: Outcome,
        environs: Mapping[str, Mapping[str, str]],
    ) -> None:
        condition = step.get("if", "success()")
        if "always()" not in condition and outcome.failed:
            return
        if not self.evaluate(condition, context, outcome):
            return
        name = step.get("name", str(number))
        outcome.ran.append(name)
        if "uses" in step:
            told = {k: self.expand(v, context, outcome) for k, v in step.get("with", {}).items()}
            outcome.used.append({"uses": step["uses"], **told})
            return
        assert step["shell"] == "bash"
        script = self.base / f"step{number}.sh"
        script.write_text(self.expand(step["run"], context, outcome))
        output, summary = self.base / f"output{number}", self.base / f"summary{number}"
        output.touch()
        summary.touch()
        own = {k: self.expand(str(v), context, outcome) for k, v in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            env={
                **self.environ,
                **own,
                **environs.get(name, {}),
                "GITHUB_ACTIONS": "true",
                "CI": "true",
                "GITHUB_ACTION_PATH": str(action),
                "GITHUB_WORKSPACE": str(self.workspace),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
                "RUNNER_TEMP": str(self.temp),
            },
        )
        outcome.log += f"##[group]{name}\n{done.stdout}"
        outcome.summary += summary.read_text()
        outcome.codes[name] = done.returncode
        outcome.failed |= done.returncode != 0
        if "id" in step:
            pairs = (line.partition("=") for line in output.read_text().splitlines())
            context["steps"][step["id"]] = {"outputs": {k: v for k, _, v in pairs}}

    # -- expressions

    def expand(self, text: str, context: dict[str, Any], outcome: Outcome) -> str:
        """Text with its ``${{ }}`` replaced."""

        def value(match: re.Match[str]) -> str:
            found = self.evaluate(match[1], context, outcome)
            return {True: "true", False: "false"}.get(found, str(found))

        return re.sub(r"\$\{\{(.*?)\}\}", value, text)

    def evaluate(self, text: str, context: dict[str, Any], outcome: Outcome) -> Any:
        """Value of an expression."""
        text = text.strip()
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            assert match, text[at:]
            tokens.append((match.lastgroup, match[match.lastgroup or ""]))
            at = match.end()
        value, rest = self._or(tokens, context, outcome)
        assert not rest, rest
        return value

    def _or(self, tokens: list[Any], context: Any, outcome: Outcome) -> tuple[Any, list[Any]]:
        value, tokens = self._and(tokens, context, outcome)
        while tokens[:1] == [("sign", "||")]:
            other, tokens = self._and(tokens[1:], context, outcome)
            value = value or other
        return value, tokens

    def _and(self, tokens: list[Any], context: Any, outcome: Outcome) -> tuple[Any, list[Any]]:
        value, tokens = self._compared(tokens, context, outcome)
        while tokens[:1] == [("sign", "&&")]:
            other, tokens = self._compared(tokens[1:], context, outcome)
            value = value and other
        return value, tokens

    def _compared(self, tokens: list[Any], context: Any, outcome: Outcome) -> tuple[Any, list[Any]]:
        value, tokens = self._atom(tokens, context, outcome)
        if tokens[:1] in ([("sign", "==")], [("sign", "!=")]):
            other, rest = self._atom(tokens[1:], context, outcome)
            return (value == other) == (tokens[0][1] == "=="), rest
        return value, tokens

    def _atom(self, tokens: list[Any], context: Any, outcome: Outcome) -> tuple[Any, list[Any]]:
        (kind, word), *rest = tokens
        if kind == "text":
            return word[1:-1].replace("''", "'"), rest
        if word == "!":
            value, rest = self._atom(rest, context, outcome)
            return not value, rest
        if rest[:1] == [("sign", "(")]:
            end = rest.index(("sign", ")"))
            arguments = [text[1:-1] for kind, text in rest[1:end] if kind == "text"]
            return self._call(word, arguments, outcome), rest[end + 1 :]
        assert kind == "name", word
        value = context
        for part in word.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        return value, rest

    def _call(self, name: str, arguments: list[str], outcome: Outcome) -> Any:
        if name == "hashFiles":
            found = sorted({p for a in arguments for p in self.workspace.glob(a)})
            return f"{hash(tuple(p.read_bytes() for p in found)):x}" if found else ""
        return {"always": True, "success": not outcome.failed, "failure": outcome.failed}[name]


def clean_environ(**more: str) -> dict[str, str]:
    """The variables that a runner starts with."""
    kept = ("HOME", "LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "UV_DEFAULT_INDEX")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **more,
    }
