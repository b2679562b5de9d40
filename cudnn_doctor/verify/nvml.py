"""Clocks, power, temperature and throttle reasons, read beside a measurement."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of nvmlClocksThrottleReasons that lower clocks under load."""
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
_INTERVAL = 0.02


def memory(uuid: str) -> dict[str, int]:
    """``memory_free`` and ``memory_total`` of a GPU, bytes; nothing where NVML does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except Exception:  # a wish, not a need: NVML may be absent, or not know a MIG instance
        return {}
    return {"memory_free": int(found.free), "memory_total": int(found.total)}


class Monitor:
    """Samples a GPU in a thread while the block runs; silent where NVML does not answer."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.samples: list[dict[str, int]] = []
        self.error = ""

    def __enter__(self) -> Monitor:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._device = pynvml, pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except Exception as error:  # NVML is an extra here: its absence must not end a measurement
            self.error = f"{type(error).__name__}: {error}"
            return self
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(timeout=2)

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            sample = {}
            for name, read in (
                ("sm_mhz", lambda n, d: n.nvmlDeviceGetClockInfo(d, 1)),
                ("memory_mhz", lambda n, d: n.nvmlDeviceGetClockInfo(d, 2)),
                ("milliwatt", lambda n, d: n.nvmlDeviceGetPowerUsage(d)),
                ("celsius", lambda n, d: n.nvmlDeviceGetTemperature(d, 0)),
                ("reasons", lambda n, d: n.nvmlDeviceGetCurrentClocksThrottleReasons(d)),
            ):
                try:
                    sample[name] = int(read(self._nvml, self._device))  # type: ignore[no-untyped-call]
                except self._nvml.NVMLError as error:
                    self.error = f"{name}: {error}"
            self.samples.append(sample)

    def summary(self) -> dict[str, Any]:
        """Ranges over the samples, and the reasons seen by name."""
        found: dict[str, Any] = {"samples": len(self.samples)}
        for name in ("sm_mhz", "memory_mhz", "milliwatt", "celsius"):
            values = [s[name] for s in self.samples if name in s]
            if values:
                found[name] = {"min": min(values), "max": max(values)}
        bits = 0
        for sample in self.samples:
            bits |= sample.get("reasons", 0)
        found["throttled"] = [text for bit, text in REASONS.items() if bits & bit]
        found["harmful"] = bool(bits & HARMFUL)
        if self.error:
            found["error"] = self.error
        return found
