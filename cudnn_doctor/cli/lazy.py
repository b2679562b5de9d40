"""A group of commands of which only the one that is asked for is imported and built."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, NamedTuple

import typer
import typer.core
import typer.main


class Place(NamedTuple):
    """Where a command is: module of this package, and its function or Typer application."""

    module: str
    attribute: str
    examples: tuple[str, ...] = ()
    """Of a command whose module has no EPILOG of its own."""
    context_settings: dict[str, Any] | None = None


def examples(*lines: str) -> str:
    """The end of a help text. It begins with an empty line: else what all lines after the first
    are indented by is taken away."""
    return "\n[bold]Examples[/bold]\n\n" + "\n".join(f"  {line}" for line in lines) + "\n"


class LazyGroup(typer.core.TyperGroup):
    """Knows its commands by `places` and builds each when it is first looked at."""

    places: ClassVar[dict[str, Place]] = {}
    """Name -> place, in the order of the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; None, with all others built for suggestions, where there is none."""
        if cmd_name not in self.places:
            for name in self.places:
                self.get_command(ctx, name)
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _build(cmd_name, self.places[cmd_name])
        return self.commands[cmd_name]


def _build(name: str, place: Place) -> Any:
    module = importlib.import_module(f"cudnn_doctor.cli.{place.module}")
    found = getattr(module, place.attribute)
    command: Any
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        epilog = examples(*place.examples) if place.examples else getattr(module, "EPILOG", None)
        alone.command(name, epilog=epilog, context_settings=place.context_settings)(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command
