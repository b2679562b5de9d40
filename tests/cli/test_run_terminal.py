"""`run` on a terminal: the program sees one, of the same size, and its end is passed on."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

SCRIPT = """
import os, sys
size = os.get_terminal_size(1)
print(f"\\x1b[32m{os.isatty(1)} {os.isatty(2)} {size.columns}x{size.lines}\\x1b[0m", flush=True)
sys.stderr.write("10%\\r100%\\nRuntimeError: libcudnn.so.9: cannot open shared object file: "
                 "No such file or directory\\n")
sys.exit(9)
"""


def on_a_terminal(*argv: str) -> tuple[str, int]:
    """Run a program on a terminal of 91x33; its output and its exit code."""
    try:
        child, terminal = pty.fork()
    except OSError:
        pytest.skip("this machine gives out no terminals")
    if child == 0:
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 91, 0, 0))
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(status)


def test_the_program_has_a_terminal_and_is_explained() -> None:
    doctor = (sys.executable, "-m", "cudnn_doctor", "run", "--no-machine", "--")
    output, code = on_a_terminal(*doctor, sys.executable, "-c", SCRIPT)
    assert code == 9
    assert "\x1b[32mTrue True 91x33\x1b[0m" in output
    assert "10%\r100%\r\n" in output
    assert "cudnn-not-" in output
