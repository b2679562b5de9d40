"""The command line: one module a command (parse, call, render, exit code); no logic."""

from cudnn_doctor.cli.app import run

__all__ = ["run"]
