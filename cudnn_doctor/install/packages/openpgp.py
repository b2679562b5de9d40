"""Read OpenPGP public keys and compute their fingerprints (RFC 4880 and 9580), nothing more.

Slim images have no gpg, and a repository's key must be judged before any package manager trusts it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

_ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+: [^\r\n]*\r?\n)*\s*\n"
    rb"(?P<body>[A-Za-z0-9+/=\s]+?)(?:\r?\n=[A-Za-z0-9+/]{4})?\s*-----END PGP PUBLIC KEY BLOCK-----"
)
_PUBLIC_KEY = 6
_SECRET = (5, 7)
_COMPRESSED_OR_DATA = (8, 9, 11, 18, 20)
_CRC_INIT, _CRC_POLY = 0xB704CE, 0x1864CFB


class Packet(NamedTuple):
    """One packet: its tag and its body."""

    tag: int
    body: bytes


def dearmour(data: bytes) -> bytes:
    """The binary packets of an ASCII-armoured key block, or ``data`` if it is binary already.

    Raises ValueError when it is neither.
    """
    if data[:1] and data[0] & 0x80:
        return data
    match = _ARMOUR.search(data)
    if match is None:
        raise ValueError("not an OpenPGP public key")
    try:
        return base64.b64decode(b"".join(match["body"].split()), validate=True)
    except binascii.Error as error:
        raise ValueError("its ASCII armour is damaged") from error


def armour(packets: bytes) -> str:
    """The ASCII-armoured form of a public key."""
    text = base64.b64encode(packets).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    check = base64.b64encode(_crc24(packets).to_bytes(3, "big")).decode()
    return "\n".join(
        (
            "-----BEGIN PGP PUBLIC KEY BLOCK-----",
            "",
            *lines,
            f"={check}",
            "-----END PGP PUBLIC KEY BLOCK-----",
            "",
        )
    )


def packets(data: bytes) -> Iterator[Packet]:
    """All packets of binary data; raises ValueError where they are malformed."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("a packet has no header")
        at += 1
        if head & 0x40:
            tag, (length, at) = head & 0x3F, _new_length(data, at)
        else:
            tag, (length, at) = head >> 2 & 0x0F, _old_length(data, at, head & 3)
        if at + length > len(data):
            raise ValueError("a packet is cut short")
        yield Packet(tag, data[at : at + length])
        at += length


def _old_length(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == 3:
        raise ValueError("a packet of indeterminate length")
    size = 1 << kind
    return _number(data, at, size), at + size


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    first = _number(data, at, 1)
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + _number(data, at + 1, 1) + 192, at + 2
    if first < 255:
        raise ValueError("a packet of partial lengths")
    return _number(data, at + 1, 4), at + 5


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError("a packet is cut short")
    return int.from_bytes(data[at : at + size], "big")


def fingerprints(data: bytes) -> list[str]:
    """Fingerprints of all primary keys in binary data, upper-case hexadecimal.

    Raises ValueError: malformed, holding something else than public keys, or a key of a version
    other than 4.
    """
    found = []
    for packet in packets(data):
        if packet.tag in _SECRET or packet.tag in _COMPRESSED_OR_DATA:
            raise ValueError(f"a packet of kind {packet.tag} does not belong into a public key")
        if packet.tag != _PUBLIC_KEY:
            continue
        if packet.body[:1] != b"\x04":
            raise ValueError("a key that is not of version 4")
        head = b"\x99" + len(packet.body).to_bytes(2, "big")
        digest = hashlib.sha1(head + packet.body, usedforsecurity=False)
        found.append(digest.hexdigest().upper())
    return found


def _crc24(data: bytes) -> int:
    crc = _CRC_INIT
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= _CRC_POLY
    return crc & 0xFFFFFF
