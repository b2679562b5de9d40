"""YAML text with its line numbers: every mistake can be told by file, line and field."""

from __future__ import annotations

import re
from typing import Any

import yaml

from cudnn_doctor.errors import BadInput

Field = tuple[str | int, ...]
"""Path of a value: ``("releases", 3, "variants", 0, "driver")``."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MALFORMED = (ValueError, AttributeError, KeyError, TypeError, OverflowError)
"""What PyYAML's constructors raise for scalars that do not fit their tag."""
_VOID = re.compile(r"\s*(#.*)?")
_STEP = re.compile(r"\.([\w-]+)|\[(\d+)\]")
_NEXT = "correct the file, then run: cudnn-doctor matrix validate FILE"


class Document:
    """A parsed YAML file. Raises BadInput where the text is no YAML that the tool reads."""

    def __init__(self, text: bytes, name: str) -> None:
        self.name = name
        try:
            decoded = text.decode()
            self.lines = decoded.splitlines()
            loader = _Loader(decoded)
            self._root: yaml.Node | None = loader.get_single_node()
            if self._root is not None:
                self._check(self._root)
            self.data: Any = loader.construct_document(self._root) if self._root else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise BadInput(f"{name}:{line}: not YAML: {error.problem}", next_step=_NEXT) from error
        except (yaml.YAMLError, RecursionError, *_MALFORMED) as error:
            summary = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(f"{name}: not YAML: {summary}", next_step=_NEXT) from error

    def line(self, field: Field) -> int:
        """Line of a value, counted from 1; that of the nearest enclosing value if it is absent."""
        node = self._root
        line = 1
        for step in field:
            found = _child(node, step)
            if found is None:
                break
            node, line = found
        return line

    def span(self, field: Field) -> tuple[int, int, int] | None:
        """First and last line (from 1) and column (from 0) of a value in block style.

        None where it is absent. Blank lines and comments after the value are not part of it.
        """
        node: yaml.Node | None = self._root
        for step in field:
            found = _child(node, step)
            if found is None:
                return None
            node = found[0]
        if node is None:
            return None
        block = isinstance(node, yaml.CollectionNode) and not node.flow_style
        last = node.end_mark.line + (0 if block else 1)  # a block ends where the next token begins
        while last > node.start_mark.line + 1 and _VOID.fullmatch(self.lines[last - 1]):
            last -= 1
        return node.start_mark.line + 1, last, node.start_mark.column

    def error(self, field: Field, message: str) -> BadInput:
        """The exception for a mistake in one field."""
        return BadInput(self.describe(field, message), next_step=_NEXT)

    def describe(self, field: Field, message: str) -> str:
        """``compat_matrix.yaml:123: releases[3].variants[0].driver: message``."""
        place = spell(field)
        return f"{self.name}:{self.line(field)}: {place + ': ' if place else ''}{message}"

    def _check(self, root: yaml.Node) -> None:
        """Refuse aliases (the file must read as it stands) and keys given twice."""
        seen: set[int] = set()
        todo = [root]
        while todo:
            node = todo.pop()
            if not isinstance(node, yaml.CollectionNode):
                continue
            if id(node) in seen:
                raise self._mark(node, "aliases are not allowed")
            seen.add(id(node))
            if isinstance(node, yaml.MappingNode):
                keys: set[str] = set()
                for key, value in node.value:
                    name = str(key.value)
                    if name in keys:
                        raise self._mark(key, f"{name[:40]!r} is given twice")
                    keys.add(name)
                    todo.append(value)
            else:
                todo.extend(node.value)

    def _mark(self, node: yaml.Node, message: str) -> BadInput:
        return BadInput(f"{self.name}:{node.start_mark.line + 1}: {message}", next_step=_NEXT)


def spell(field: Field) -> str:
    """``releases[3].variants[0].driver``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field)
    return text.removeprefix(".")


def parse_path(text: str) -> Field:
    """Read msgspec's spelling of a path, ``$.releases[3].driver``; unknown parts end it."""
    steps: list[str | int] = []
    at = len("$")
    while match := _STEP.match(text, at):
        steps.append(match[1] if match[1] else int(match[2]))
        at = match.end()
    return tuple(steps)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line + 1
    return None
