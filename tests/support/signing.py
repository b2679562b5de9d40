"""A signing key made for the tests by real gpg."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path


class SigningKey:
    """An RSA key in a GnuPG home of its own."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="gpg-"))  # short: the agent's socket is in it
        atexit.register(self._end)
        self._public: dict[bool, bytes] = {}
        uid = "Test Repository <test@example.org>"
        self.gpg("--passphrase", "", "--quick-gen-key", uid, "rsa2048", "sign", "never")
        listing = self.gpg("--with-colons", "--fingerprint")
        rows = [line.split(":") for line in listing.decode().splitlines()]
        self.fingerprint = next(row[9] for row in rows if row[0] == "fpr")

    def _end(self) -> None:
        if shutil.which("gpgconf"):
            subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False)
        shutil.rmtree(self.home, ignore_errors=True)

    def gpg(self, *args: str) -> bytes:
        """Run gpg with this key's home; returns its output."""
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", *args]
        return subprocess.run(argv, check=True, capture_output=True).stdout

    def public(self, armoured: bool = True) -> bytes:
        """The public key."""
        if armoured not in self._public:
            options = ["--armor"] if armoured else []
            self._public[armoured] = self.gpg(*options, "--export")
        return self._public[armoured]

    def sign(self, file: Path, to: Path, how: str = "--detach-sign") -> None:
        """Sign a file, armoured."""
        self.gpg("--armor", how, "--output", str(to), str(file))
