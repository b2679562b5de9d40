"""`Words`: the names that go into commands (package, version, folder, package manager)."""

# Shell lines stay whole, so that they can be found and read as they are typed.
# ruff: noqa: E501

from __future__ import annotations

import re
from functools import cached_property

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers, release


class Words:
    """Answers "how is it called here" for one diagnosis of one case."""

    def __init__(self, case: Case, diagnosis: str) -> None:
        self.case = case
        suspect = case.suspects.get(diagnosis)
        self.culprit = suspect.culprit if suspect else ""

    @cached_property
    def major(self) -> int | None:
        """cuDNN major that is wanted, from the missing name or the framework's words."""
        for seen in self.case.seen("missing-library"):
            found = re.search(r"libcudnn\w*\.so\.(\d+)", seen.get("lib"))
            if found:
                return int(found[1])
        for seen in self.case.seen("sublibrary-not-loaded"):
            return int(seen.get("version").split(".")[0])
        for seen in self.case.seen("requires"):
            return int(seen.get("cudnn"))
        majors = [c.major for c in self.case.facts.copies if c.major]
        return majors[0] if majors else None

    @cached_property
    def cuda_major(self) -> str:
        """CUDA major in use, as text; empty when unknown."""
        wheels = [name[-2:] for name in self.case.facts.cudnn_wheels]
        if wheels:
            return wheels[0]
        for framework in self.case.facts.machine.frameworks:
            if framework.cuda and framework.cuda != "cpu":
                return framework.cuda.split(".")[0]
        for seen in self.case.seen("requires"):
            return seen.get("cuda")
        majors = self.case.facts.cuda_majors
        return str(max(majors)) if majors else ""

    @cached_property
    def wheel_package(self) -> str:
        wheels = self.case.facts.cudnn_wheels
        if wheels:
            return next(iter(wheels))
        named = re.search(
            r"nvidia[-_]cudnn[-_]cu\d\d", "\n".join(o.text for o in self.case.observations)
        )
        if named:
            return named[0].replace("_", "-")
        fallback = "11" if self.major == 8 and self.cuda_major == "11" else self.cuda_major or "12"
        return f"nvidia-cudnn-cu{fallback}"

    @cached_property
    def wheel_version(self) -> str:
        """Installed version of the cuDNN wheel, empty when unknown."""
        version = self.case.facts.cudnn_wheels.get(self.wheel_package, "")
        if version:
            return version
        for seen in self.case.seen("already-satisfied"):
            return seen.get("version")
        return ""

    @property
    def exact_wheel(self) -> str:
        version = self.wheel_version
        if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", version):
            return f"{self.wheel_package}=={version}"
        return f'"{self.wheel_package}==<the version torch pins>"'

    @property
    def cudnn_wheel(self) -> str:
        """Requirement for a cuDNN of the wanted major."""
        major = self.major
        if major is None or major >= 9:
            return f'"{self.wheel_package}>=9,<10"'
        return f'"{self.wheel_package}>={major},<{major + 1}"'

    @cached_property
    def hidden_folder(self) -> str:
        """Folder of the copy that the loader does not search."""
        folder = re.match(
            r"(?:a cuDNN module is loaded, but |libcudnn\.so \(the wheel in )?([$~/\w.-][^\s(]*)",
            self.culprit,
        )
        return folder[1] if folder and "/" in folder[1] and ".so" not in folder[1] else ""

    @property
    def pythonic(self) -> bool:
        return self.case.facts.uses(
            "torch", "whisper", "ctranslate2", "onnxruntime", "jax", "tensorflow"
        )

    @property
    def export_wheel_path(self) -> str:
        return (
            "export LD_LIBRARY_PATH=\"$(python -c 'import nvidia.cudnn as c, nvidia.cublas as b; "
            'print(list(c.__path__)[0]+"/lib:"+list(b.__path__)[0]+"/lib")\'):$LD_LIBRARY_PATH"'
        )

    @property
    def export_wheel_only(self) -> str:
        folder = next((c.folder for c in self.case.facts.copies if c.kind == "wheel"), "")
        if folder.startswith(("/", "$", "~")):
            return f"export LD_LIBRARY_PATH={folder}"
        return (
            "export LD_LIBRARY_PATH=\"$(python -c 'import nvidia.cudnn as c; "
            'print(list(c.__path__)[0]+"/lib")\')"   # <venv>/lib/python3.X/site-packages/nvidia/cudnn/lib'
        )

    @cached_property
    def conda(self) -> bool:
        return any(c.kind == "conda" for c in self.case.facts.copies) or "conda" in self.culprit

    @cached_property
    def system_copy(self) -> bool:
        return any(c.kind == "system" for c in self.case.facts.copies)

    @cached_property
    def system_package(self) -> str:
        """The system's cuDNN package, as its owner is called."""
        for copy in self.case.facts.copies:
            for owner in copy.owners:
                if owner.kind in ("dpkg", "rpm", "pacman") and owner.name:
                    return owner.name
        return self._package(self.major or 9)

    def _package(self, major: int) -> str:
        cuda = self.cuda_major or "12"
        names = {
            "pacman": "cudnn",
            "dnf": f"libcudnn{major}-cuda-{cuda}",
            "zypper": f"libcudnn{major}-cuda-{cuda}",
        }
        default = f"libcudnn{major}-cuda-{cuda}" if major >= 9 else f"libcudnn{major}"
        if major < 9:
            return {"pacman": "cudnn"}.get(self.case.facts.manager, default)
        return names.get(self.case.facts.manager, default)

    @property
    def prefix_install(self) -> str:
        """The command that installs the wanted major, for the CUDA in use, into a prefix."""
        cuda = f" --cuda {self.cuda_major}" if self.cuda_major else ""
        return f"cudnn-doctor install --method tarball --version {self.major or 9}{cuda}"

    @property
    def system_commands(self) -> tuple[str, ...]:
        package = self._package(self.major or 9)
        note = "   # from NVIDIA's repository"
        return {
            "pacman": (f"sudo pacman -S {package}",),
            "dnf": (f"sudo dnf install {package}{note}", f"{self.prefix_install}   # or without dnf"),
            "zypper": (f"sudo zypper install {package}{note}",),
        }.get(self.case.facts.manager, (f"sudo apt-get install {package}{note}",))  # fmt: skip

    @property
    def system_install(self) -> list[Remedy]:
        extra = tuple(
            f"sudo dnf install libcublas-{m.replace('.', '-')}" for m in self._missing_cublas
        )
        return [
            Remedy(
                title="Or install the system package",
                commands=(*extra, *self.system_commands),
                needs_root=True,
            )
        ]

    @property
    def _missing_cublas(self) -> list[str]:
        if self.case.facts.manager != "dnf":
            return []
        last = {"11": "11.8", "12": "12.9", "13": "13.0", "10": "10.2"}
        found = (
            re.search(r"libcublas\.so\.(\d+)", o.get("lib"))
            for o in self.case.seen("missing-library")
        )
        return [last.get(hit[1], f"{hit[1]}.0") for hit in found if hit][:1]

    @property
    def system_reinstall(self) -> list[Remedy]:
        package = self.system_package
        commands = {
            "pacman": f"sudo pacman -S {package}",
            "dnf": f"sudo dnf reinstall {package}",
            "zypper": f"sudo zypper install --force {package}",
        }
        command = commands.get(
            self.case.facts.manager, f"sudo apt-get install --reinstall {package}"
        )
        return [
            Remedy(
                title="Reinstall the whole package",
                commands=(command, "sudo ldconfig"),
                needs_root=True,
            )
        ]

    @property
    def remove_system(self) -> tuple[str, ...]:
        package = self.system_package
        if any(o.kind == "pacman" for c in self.case.facts.copies for o in c.owners):
            return (f"sudo pacman -R {package}",)
        commands = {
            "pacman": f"sudo pacman -R {package}",
            "dnf": f"sudo dnf remove {package}",
            "zypper": f"sudo zypper remove {package}",
        }
        return (commands.get(self.case.facts.manager, f"sudo apt-get remove {package}"),)

    @property
    def dev_install(self) -> tuple[str, ...]:
        major = self.major or 9
        cuda = self.cuda_major or "12"
        deb = f"libcudnn{major}-dev" if major < 9 else f"libcudnn{major}-dev-cuda-{cuda}"
        rpm = f"libcudnn{major}-devel" if major < 9 else f"libcudnn{major}-devel-cuda-{cuda}"
        return {
            "pacman": ("sudo pacman -S cudnn",),
            "dnf": (f"sudo dnf install {rpm}",),
            "zypper": (f"sudo zypper install {rpm}",),
        }.get(self.case.facts.manager, (f"sudo apt-get install {deb}",))

    @cached_property
    def wanted_twin(self) -> tuple[str, str]:
        """Of two clobbered wheels, the one whose files are not on the disk."""
        wheels = sorted(self.case.facts.cudnn_wheels.items()) or [(self.wheel_package, "")]
        loaded = [
            release(o.get("number") or o.get("version")) for o in self.case.seen("cudnn-version")
        ]
        have = [v.release for v in loaded if v] + [
            numbers(c.version)[:3] for c in self.case.facts.copies
        ]
        lost = [(n, v) for n, v in wheels if numbers(v)[:3] not in have]
        return lost[-1] if lost else wheels[-1]

    @cached_property
    def built_version(self) -> str:
        for seen in self.case.seen("version-refused"):
            version = release(seen.get("built"))
            if version:
                return version.short
        return next(
            (f.cudnn_built for f in self.case.facts.machine.frameworks if f.cudnn_built), ""
        )

    @property
    def image_cuda(self) -> str:
        found = re.search(r"cuda:(\d+\.\d+)", self.case.facts.prose)
        return found[1] if found else ""

    @property
    def torch_index(self) -> str:
        """The framework's own wheel index for a CUDA that fits the GPU and the driver."""
        tag = "cu128"
        capability = self.case.facts.capability
        if capability and (capability >= (12, 1) or capability[0] == 11):
            tag = "cu130"
        driver = numbers(self.case.facts.driver)
        if driver and driver[0] < 525:
            tag = "cu118"
        return f"https://download.pytorch.org/whl/{tag}"
