"""Arithmetic on single coefficients in GF(2^8) and GF(2^16).

It must not touch shards: a product costs three table lookups here, which is fine for matrices and
far too slow for payloads. Nothing is computed on import; each field is built when it is first asked
for and takes at most 1 MiB.

A symbol is a *label*: it stands for the field element that is the XOR of the basis elements of its
set bits. Labels add (XOR) as elements do; products go through the discrete logarithms of the
elements. With the basis 1, 2, 4 … labels are the elements themselves.

Spec: LIP-243 (Segmentation), Reed-Solomon parity; the published descriptions of Leopard-RS for its
basis.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
"""Raw bytes of any shape."""

Symbols: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Symbols of a field: uint8 or uint16."""

POLYNOMIAL_8: Final = 0x11D
"""x^8 + x^4 + x^3 + x^2 + 1: both codes use it, and 2 generates the field."""

POLYNOMIAL_16: Final = 0x1002D
"""x^16 + x^5 + x^3 + x^2 + 1, Leopard's; 2 generates the field."""

CANTOR_BASIS_8: Final = (1, 214, 152, 146, 86, 200, 88, 230)
"""Leopard's basis of GF(2^8)."""

CANTOR_BASIS_16: Final = (
    *(0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012),
    *(0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E),
)
"""Leopard's basis of GF(2^16)."""

LEOPARD_RUN: Final = np.dtype("V32")
"""Leopard keeps the low bytes of 32 GF(2^16) symbols together, then their high bytes."""


class Field:
    """A field of 2^8 or 2^16 elements whose symbols are labels over a basis.

    Args:
        polynomial: Primitive, with 2 as a generator.
        basis: Elements that the bits of a label stand for, lowest bit first; 8 or 16 of them.
    """

    def __init__(self, polynomial: int, basis: tuple[int, ...]) -> None:
        self.symbol_bytes = len(basis) // 8
        """Bytes of a symbol, 1 or 2."""
        self.dtype = np.dtype(f"<u{self.symbol_bytes}")
        """How symbols are stored: as on the wire, low byte first."""
        self._order = (1 << len(basis)) - 1
        powers = _powers(polynomial, self._order)
        label_of = np.zeros(self._order + 1, self.dtype)
        label_of[_elements(basis)] = np.arange(self._order + 1)
        cycle = label_of[powers]
        # The logarithm of 0 is so large that every sum with it lands in the zeros at the end.
        self._exp = np.zeros(4 * self._order + 1, self.dtype)
        self._exp[: 2 * self._order] = np.tile(cycle, 2)
        self._log = np.full(self._order + 1, 2 * self._order, np.int32)
        self._log[cycle] = np.arange(self._order)
        self._shears = self._shear_table() if self.symbol_bytes > 1 else b""

    def multiply(self, left: Symbols, right: Symbols | int) -> Symbols:
        """Return the products of two arrays of symbols, element by element with broadcasting."""
        logarithms = self._log[left] + self._log[right]
        products: Symbols = self._exp.take(logarithms)
        return products

    def invert(self, symbols: Symbols) -> Symbols:
        """Return the multiplicative inverses of symbols, none of which may be 0."""
        inverses: Symbols = self._exp.take(self._order - self._log[symbols])
        return inverses

    def as_symbols(self, values: object) -> Symbols:
        """Return numbers as an array of symbols."""
        return np.asarray(values).astype(self.dtype)

    def sheared(self, symbols: Symbols) -> Symbols:
        """Return symbols in the form that lanes have, or back: both are the same step.

        In this form a product with a coefficient below 256 needs no carry between the bytes: each
        of its bytes depends on the same byte alone.
        """
        if self.symbol_bytes == 1:
            return symbols
        sheared: Symbols = symbols ^ np.frombuffer(self._shears, np.uint8)[symbols >> 8]
        return sheared

    def lanes(self, shards: Bytes) -> Bytes:
        """Return the bytes of one or more shards as rows, sheared: all low bytes, all high bytes.

        Args:
            shards: By byte, or by (shard, byte).

        Returns:
            Bytes by (lane, symbol) or (shard, lane, symbol).
        """
        if self.symbol_bytes == 1:
            return shards[..., None, :]
        runs = shards.view(LEOPARD_RUN).reshape(*shards.shape[:-1], -1, 2)
        lanes: Bytes = runs.swapaxes(-1, -2).copy().view(np.uint8)
        self._shear(lanes)
        return lanes

    def shards(self, lanes: Bytes) -> Bytes:
        """Return the shards whose lanes these are; it may change the lanes."""
        if self.symbol_bytes == 1:
            return lanes[..., 0, :]
        self._shear(lanes)
        runs = lanes.view(LEOPARD_RUN).swapaxes(-1, -2).copy()
        shards: Bytes = runs.reshape(*lanes.shape[:-2], -1).view(np.uint8)
        return shards

    def _shear(self, lanes: Bytes) -> None:
        low, high = lanes[..., 0, :], lanes[..., 1, :]
        low ^= np.frombuffer(high.tobytes().translate(self._shears), np.uint8).reshape(low.shape)

    def _shear_table(self) -> bytes:
        """Return what is added to the low byte of a symbol, by its high byte.

        The labels below 256 are a smaller field within this one, and their products with one label
        beyond are a plane that it keeps to. The plane has one label for each high byte; a symbol is
        that label plus a low byte, which is what shearing leaves of it.
        """
        plane = self.multiply(self.as_symbols(range(256)), 256)
        table = np.zeros(256, np.uint8)
        table[plane >> 8] = plane & 255
        return table.tobytes()


@cache
def binary_field() -> Field:
    """Return GF(2^8) as ``reedsolo`` has it: a byte is a polynomial over GF(2)."""
    return Field(POLYNOMIAL_8, tuple(1 << bit for bit in range(8)))


@cache
def leopard_field(symbol_bytes: int) -> Field:
    """Return the field whose symbols have so many bytes, 1 or 2, as Leopard-RS labels it."""
    if symbol_bytes == 1:
        return Field(POLYNOMIAL_8, CANTOR_BASIS_8)
    return Field(POLYNOMIAL_16, CANTOR_BASIS_16)


@lru_cache(maxsize=512)  # two fields of 256 coefficients: all there are, 128 KiB
def translation(field: Field, coefficient: int) -> bytes:
    """Return the products of a coefficient with all bytes, as a table for ``bytes.translate``.

    Args:
        field: One with symbols of one byte.
        coefficient: A symbol.
    """
    return field.multiply(field.as_symbols(range(256)), coefficient).tobytes()


def _powers(polynomial: int, count: int) -> NDArray[np.int32]:
    """Return the first powers of 2 modulo the polynomial."""
    top = 1 << (polynomial.bit_length() - 1)
    powers, element = [], 1
    for _ in range(count):
        powers.append(element)
        element <<= 1
        if element & top:
            element ^= polynomial
    return np.array(powers, np.int32)


def _elements(basis: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the elements of all labels, in the order of the labels."""
    elements = np.zeros(1, np.int32)
    for element in basis:
        elements = np.concatenate([elements, elements ^ element])
    return elements
