"""Reed-Solomon parity: what a sender adds so that a receiver can do without some of the segments.

It must not know about segments, payloads or padding: shards of one length go in, and shards of that
length come out. It must not be trusted with integrity either: rebuilding does not notice a
corrupted shard, the payload's hash does.

Two codes stand behind one interface. Each only supplies a matrix of coefficients
(``reedsolo_code``, ``leopard_code``); ``field`` and ``matrix`` do the arithmetic on coefficients,
and one kernel (``kernel``) that on shards.

Spec: LIP-243 (Segmentation), Reed-Solomon parity.
"""

from __future__ import annotations

from reliable_channel.core.reed_solomon.coding import encode_parity, recover
from reliable_channel.errors import UnrecoverableError

__all__ = (
    "UnrecoverableError",
    "encode_parity",
    "recover",
)
