"""The exit codes in words: one table for ``--help`` and the documentation."""

from __future__ import annotations

from cudnn_doctor.errors import ExitCode

MEANING = {
    ExitCode.OK: "healthy, or the job is done",
    ExitCode.PROBLEMS: "problems were found",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CANNOT_TELL: "too little is known for a verdict",
    ExitCode.NO_COMPATIBLE_VERSION: "no cuDNN satisfies all demands",
    ExitCode.NOTHING_CHANGED: "refused or failed, and nothing changed",
    ExitCode.VERIFICATION_FAILED: "a cuDNN copy failed verification",
    ExitCode.BAD_INPUT: "a file that was given cannot be used",
    ExitCode.UNFINISHED: "interrupted and not undone yet; the next command tries again",
    ExitCode.INTERNAL: "a bug in cudnn-doctor",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C or SIGTERM",
}
"""What each code says, whatever the command and the output format."""

EPILOG = "[bold]Exit codes[/bold]\n\n" + "\n".join(
    f"  {int(code):>3}  {meaning}" for code, meaning in MEANING.items()
)
