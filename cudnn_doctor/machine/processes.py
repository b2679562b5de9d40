"""Running processes that have cuDNN mapped (``/proc/*/maps``)."""

from __future__ import annotations

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import Process

_LIMIT = 1 << 24
_CUDNN = "libcudnn"


def probe_processes(host: Host) -> tuple[Process, ...] | None:
    """Processes with a mapped libcudnn*, by pid; None when there is no /proc to read.

    Other users' processes are passed over when this user may not read their maps.
    """
    if not speaks_for(host, "/proc"):
        return None
    pids = sorted(int(name) for name in host.names("/proc") if name.isdecimal())
    if not pids:
        return None
    found = []
    for pid in pids:
        mapped = _mapped(host.text(f"/proc/{pid}/maps", _LIMIT) or "")
        if mapped:
            words = (host.text(f"/proc/{pid}/cmdline", 4096) or "").split("\0")
            command = " ".join(word for word in words if word)
            found.append(Process(pid=pid, command=command, mapped=mapped))
    return tuple(found)


def _mapped(maps: str) -> tuple[str, ...]:
    """Sorted paths of cuDNN's files; a file replaced since ends with `` (deleted)``."""
    if _CUDNN not in maps:
        return ()
    paths = {line[line.index("/") :] for line in maps.splitlines() if "/" in line}
    return tuple(sorted(path for path in paths if _CUDNN in path.rpartition("/")[2]))
