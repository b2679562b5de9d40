"""Whether the kernel's file systems below a root describe the probed machine."""

from __future__ import annotations

import os
from typing import Literal

from cudnn_doctor.machine.host import Host


def speaks_for(host: Host, folder: Literal["/proc", "/sys", "/dev"]) -> bool:
    """True on the live machine and for a folder tree recorded from another one.

    False where the running kernel's own file system is mounted in a root folder (a chroot made
    ready for use): it tells about this machine, not about the image.
    """
    here = host.stat(folder)
    if here is None:
        return False
    if host.live:
        return True
    try:
        running = os.stat(folder).st_dev
        return here.st_dev != running or running == os.stat("/").st_dev
    except OSError:
        return True
