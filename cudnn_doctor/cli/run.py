"""``cudnn-doctor run -- COMMAND``: run a program as it is, then explain what went wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.explain.match import Scan

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor run -- python train.py --epochs 3
  cudnn-doctor run --no-machine -- docker run --gpus all IMAGE

[bold]Exit codes[/bold]

Those of the program; ended by a signal, this ends by the same one.
126: it cannot be executed, 127: it is not found.
"""
_GRACE_S = 2.0
_SURE = 0.5


def run(
    context: typer.Context,
    *,
    snapshot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Facts to judge by, instead of this machine.")
    ] = None,
    no_machine: Annotated[
        bool, typer.Option("--no-machine", help="Judge by the output alone.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Explain in JSON (on stderr).")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All diagnoses in full.")
    ] = False,
) -> None:
    """Run a program, pass its output and exit code on, and explain its failure on stderr."""
    if not context.args:
        raise DoctorError(
            "no command given",
            next_step="cudnn-doctor run -- COMMAND [ARGUMENT]...",
            exit_code=ExitCode.USAGE,
        )
    code, found = _run(context.args)
    from cudnn_doctor.cli.explain import findings_of, known_machine, show
    from cudnn_doctor.explain.judge import judge

    if code != 0 or found.observations:
        machine = None if no_machine else known_machine(snapshot)
        explanation = judge(found, machine, findings_of(machine))
        sure = [d for d in explanation.diagnoses if d.confidence >= _SURE]
        if explanation.diagnoses and (code != 0 or (sure and sure[0].id != "benign-noise")):
            print(file=sys.stderr)
            show(explanation, as_json=json, verbose=verbose, to_stderr=True)
    sys.stderr.flush()
    _end(code)


def _run(argv: list[str]) -> tuple[int, Scan]:
    """The program's return code (negative: signal) and what its output holds."""
    from cudnn_doctor.explain.match import Scan, scan

    outputs = [_Output(1), _Output(2)]
    try:
        child = subprocess.Popen(argv, stdout=outputs[0].inner, stderr=outputs[1].inner)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        print(f"error: cannot run {argv[0]}: {error}", file=sys.stderr)
        raise typer.Exit(127 if missing else 126) from None
    for output in outputs:
        os.close(output.inner)
    inlet, outlet = os.pipe()
    found: list[Scan] = []
    with os.fdopen(inlet, "rb") as source:
        reader = threading.Thread(target=lambda: found.append(scan(source)))
        reader.start()
        code = _pump(child, outputs, outlet)
        os.close(outlet)
        reader.join()
    return code, found[0] if found else Scan((), 0)


class _Output:
    """One stream of the program: a terminal where ours is one (colours and progress bars stay),
    else a pipe."""

    def __init__(self, ours: int) -> None:
        self.ours = ours
        self.terminal = os.isatty(ours)
        if self.terminal:
            self.outer, self.inner = os.openpty()
            settings = termios.tcgetattr(self.inner)
            settings[1] &= ~termios.OPOST  # our own terminal does that
            termios.tcsetattr(self.inner, termios.TCSANOW, settings)
            self.resize()
        else:
            self.outer, self.inner = os.pipe()

    def resize(self) -> None:
        """Make the program's terminal as large as ours."""
        size = fcntl.ioctl(self.ours, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, size)

    def read(self) -> bytes:
        """What the program wrote since; empty at its end."""
        try:
            return os.read(self.outer, 1 << 16)
        except OSError as error:
            if error.errno == errno.EIO:  # nobody holds the terminal's other side any more
                return b""
            raise


def _pump(child: subprocess.Popen[bytes], outputs: list[_Output], feed: int) -> int:
    """Copy both streams through and into ``feed`` by whole lines, until the child ends."""
    lock = threading.Lock()
    done = threading.Event()

    def copy(output: _Output) -> None:
        rest = b""
        target = output.ours
        while chunk := output.read():
            _write_all(target, chunk)
            rest += chunk
            cut = rest.rfind(b"\n") + 1
            if cut == 0 and len(rest) > 1 << 20:
                cut = len(rest)
            whole, rest = rest[:cut], rest[cut:]
            with lock:
                if not done.is_set():
                    _write_all(feed, whole)
        with lock:
            if rest and not done.is_set():
                _write_all(feed, rest + b"\n")

    threads = [threading.Thread(target=copy, args=(output,), daemon=True) for output in outputs]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminals = [output for output in outputs if output.terminal]

    def resized(*_: object) -> None:
        for output in terminals:
            output.resize()
            child.send_signal(signal.SIGWINCH)

    if terminals:
        signal.signal(signal.SIGWINCH, resized)
    try:
        for thread in threads:
            thread.start()
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in threads:  # a process left behind may hold the pipe open
        thread.join(_GRACE_S)
    with lock:
        done.set()
    return code


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(target, view) :]
    except BrokenPipeError:
        return


def _end(code: int) -> None:
    """End as the program did."""
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        number = signal.Signals(-code)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        sys.stdout.flush()
        os.kill(os.getpid(), number)
    raise typer.Exit(code)
