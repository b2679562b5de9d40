"""Remedies for what may not be opened, reached or written, and for cuDNN's own behaviour."""

# Shell lines stay whole, so that they can be found and read as they are typed.
# ruff: noqa: E501

from __future__ import annotations

import re

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.explain.wording import Words


def _r(title: str, *commands: str, root: bool = False, auto: bool = False) -> Remedy:
    return Remedy(title=title, commands=commands, needs_root=root, automatic=auto)


def selinux(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Allow containers the devices", "sudo setsebool -P container_use_devices=true", root=True),
        _r("Or leave the labels off for this container", "podman run --security-opt label=disable ...   # docker: the same option"),
        _r("If the nodes' labels are wrong", "sudo restorecon -v /dev/nvidia*   # what was denied: ausearch -m avc -ts recent",
           root=True),
    )  # fmt: skip


def permission(w: Words) -> tuple[Remedy, ...]:
    library = w.case.first("library-permission")
    denied = w.case.first("install-denied")
    found = []
    if library is not None:
        path = library.get("path") or library.get("lib")
        folder = next((c.folder for c in w.case.facts.copies if c.folder), "")
        target = path if "/" in path else f"{folder or '<folder>'}/libcudnn*"
        found.append(_r("Let everybody read the files", f"sudo chmod a+r {target}", root=True))
    if denied is not None:
        found.extend(not_writable(w))
    if w.case.seen("gpu-permission") or not found:
        found.append(_r("Join the group that owns the nodes", "ls -l /dev/nvidia*",
                        'sudo usermod -aG video,render "$USER"   # log in again', root=True))  # fmt: skip
    return tuple(found)


def not_writable(w: Words) -> tuple[Remedy, ...]:
    own = _r("Install into an environment of your own",
             "python3 -m venv ~/venv && ~/venv/bin/pip install <package>")  # fmt: skip
    text = "\n".join(o.text for o in w.case.seen("read-only", "install-denied"))
    if "EnvironmentNotWritable" in text:
        return (
            _r("Make a conda environment of your own", "conda create -n cudnn && conda activate cudnn"),
            own,
        )  # fmt: skip
    if re.search(r"\b(?:cp|ln|tar|mkdir|install|mv): |lock file|are you root", text):
        mount = _r("Or unpack into a folder of your own", "cudnn-doctor install --prefix ~/cudnn")
        if "ead-only" in text:
            return (mount, own)
        return (_r("Do it as root", "sudo <the same command>", root=True), mount, own)
    return (own,)


def network(w: Words) -> tuple[Remedy, ...]:
    found = [
        _r("Go through the proxy, with its certificate", "export HTTPS_PROXY=http://<proxy>:<port>",
           "pip install --cert <the proxy's CA.pem> <package>"),
        _r("uv: the system's certificates, and more patience", "UV_HTTP_TIMEOUT=300 uv --native-tls pip install <package>"),
        _r("On a slow line", "pip install --timeout 120 --retries 10 <package>"),
        _r("Offline: fetch elsewhere, carry over", "pip download -d wheels <package>   # there",
           "pip install --no-index --find-links wheels <package>   # here"),
    ]  # fmt: skip
    text = "\n".join(o.text for o in w.case.seen("network"))
    first = 1 if "uv" in w.case.facts.products or "network timeout" in text else 0
    return (found[first], *found[:first], *found[first + 1 :])


def no_driver(w: Words, install: Remedy) -> tuple[Remedy, ...]:
    if "Secure Boot" in w.culprit:
        enrol = "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der && sudo reboot"
        return (
            _r("Enrol the key that signed the module, or switch Secure Boot off", enrol, root=True),
            install,
        )
    if "nouveau" in w.culprit:
        block = "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf"
        rebuild = "sudo update-initramfs -u && sudo reboot   # dracut --force on Fedora and RHEL"
        return (_r("Keep nouveau off the GPU", block, rebuild, root=True), install)
    return (install,)


def bundled(w: Words) -> tuple[Remedy, ...]:
    name = next((f.distribution or f.name for f in w.case.facts.machine.frameworks), "torch")
    found = [_r("Upgrade the framework: its own copy is what is loaded", f"pip install -U {name}")]
    if w.case.facts.cudnn_wheels or "site-packages/nvidia" in w.culprit:
        found.append(_r("Or exchange the wheel's copy, within the major",
                        f'pip install --no-deps "{w.wheel_package}==<version>"'))  # fmt: skip
    return tuple(found)


def heuristic(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Measure the engines instead of guessing", "python: torch.backends.cudnn.benchmark = True   # fixed shapes"),
        _r("Or take another release of cuDNN within the major", f'pip install --no-deps "{w.wheel_package}==<the faster one>"'),
    )  # fmt: skip


def regression(w: Words) -> tuple[Remedy, ...]:
    told = " ".join([w.case.facts.prose, *(o.text for o in w.case.seen("worked-before"))])
    loaded = re.search(r"\d+\.\d+\.\d+", w.culprit)
    worked = re.findall(r"(\d+\.\d+(?:\.\d+)*) (?:work|is fine|is ok)", told)
    worked += re.findall(
        r"(?:work|fine|ok|back|downgrad|revert)\w*[^\n;]{0,60}?(\d+\.\d+(?:\.\d+)*)", told
    )
    good = next((v for v in worked if not loaded or not v.startswith(loaded[0])), "")
    spec = f"=={good}.*" if good else "==<the release that worked>"
    return (
        _r("Go back to the release that worked", f'pip install --no-deps "{w.wheel_package}{spec}"', auto=False),
        _r("Or forward to a later one, within the major", f"pip index versions {w.wheel_package}"),
    )  # fmt: skip
