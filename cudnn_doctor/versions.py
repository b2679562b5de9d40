"""cuDNN release numbers in their three spellings: text, C macro and file name."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:\.(\d{1,6}))?")


class CudnnVersion(NamedTuple):
    """``major.minor.patch[.build]``; ordering is by number, an unknown build sorts first."""

    major: int
    minor: int = 0
    patch: int = 0
    build: int = -1

    @classmethod
    def parse(cls, text: str) -> CudnnVersion:
        """Read ``9.10.2`` or ``9.10.2.21``; raises ValueError on anything else."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a cuDNN version: {text!r}")
        major, minor, patch, build = match.groups()
        return cls(int(major), int(minor or 0), int(patch or 0), int(build) if build else -1)

    @classmethod
    def decode(cls, number: int) -> CudnnVersion:
        """Decode ``cudnnGetVersion()``/``CUDNN_VERSION``: 8907 is 8.9.7, 90100 is 9.1.0.

        The encoding changed with 9.0: before, major*1000 + minor*100 + patch; from then on,
        major*10000 + minor*100 + patch (CUDNN_VERSION in cudnn_version.h of 8.9.7 and 9.1.0).
        """
        scale = 10000 if number >= 90000 else 1000
        return cls(number // scale, number % scale // 100, number % 100)

    @property
    def release(self) -> tuple[int, int, int]:
        """``(major, minor, patch)``, without the build."""
        return self[:3]

    @property
    def short(self) -> str:
        """``9.10.2``, without the build."""
        return f"{self.major}.{self.minor}.{self.patch}"

    def __str__(self) -> str:
        return self.short if self.build < 0 else f"{self.short}.{self.build}"
