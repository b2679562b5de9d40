"""The error that is raised for every `cudnnStatus_t` but 0."""

from __future__ import annotations

from cudnn_doctor.status import STATUS_NAMES

NOT_EXPORTED = -1
"""Our own code for a function that the release does not export."""


def status_name(code: int) -> str:
    """``CUDNN_STATUS_...`` of a code of either numbering (they do not overlap but for 0)."""
    if code == NOT_EXPORTED:
        return "not exported"
    name = STATUS_NAMES.get(code)
    return f"CUDNN_STATUS_{name}" if name else f"cudnnStatus_t({code})"


class CudnnError(Exception):
    """A cuDNN call that did not return CUDNN_STATUS_SUCCESS."""

    def __init__(self, call: str, code: int, message: str = "") -> None:
        self.call = call
        self.code = code
        self.name = status_name(code)
        self.message = message
        super().__init__(f"{call}: {self.name}" + (f" ({message})" if message else ""))

    @property
    def unsupported(self) -> bool:
        """Whether cuDNN says that it does not do this (which is an answer, not a fault), or the
        release has no such function (any more).

        A missing sublibrary or run-time compiler is a fault although its code is in the group.
        """
        missing = ("SUBLIBRARY_UNAVAILABLE", "PREREQUISITE_MISSING", "INCOMPATIBLE", "ARCH")
        if self.code == NOT_EXPORTED:
            return True
        return "NOT_SUPPORTED" in self.name and not any(part in self.name for part in missing)
