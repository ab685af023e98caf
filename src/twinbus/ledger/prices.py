"""Price sheets: the cost of operations, connections, bandwidth and of a namespace as such.

Rules:
- A sheet is a TOML file; ours are in `sheets/`, and anybody can write one (docs/prices.md).
- Money is exact: prices are Decimals written as strings, and a bill is truncated, never rounded up, to twelve decimals.
- Tiers are cumulative within a month: the cost of some units is the total with them minus the total without them.
- An invalid sheet is a ConfigError that names the field and the expected value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import ConfigError
from twinbus.ledger import files
from twinbus.ledger.words import OK, Kind
from twinbus.limits import OPERATION_STEP_BYTES

if TYPE_CHECKING:
    from pathlib import Path

# Decimals of an amount.
DECIMALS: Final = 12
# Limits of a price within which sums stay exact in a DECIMAL(38).
PRICE_DECIMALS: Final = 9
PRICE_MAX: Final = Decimal(100_000)
_SCALE: Final = 10**DECIMALS
# Bytes to which a bandwidth price applies.
GIGABYTE: Final = 10**9
_COUNT_MAX: Final = 10**15
_TIERS_MAX: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_CURRENCY: Final = re.compile(r"[A-Z]{3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tier:
    """A price up to a number of units per month; `up_to` is None for the last tier."""

    up_to: int | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Tiers:
    """Prices by prior usage in the month. A tier's price is for `per` units."""

    per: int
    steps: tuple[Tier, ...]

    def total(self, units: int) -> Decimal:
        """Return the cost of the first `units` of a month."""
        cost = low = 0
        for tier in self.steps:
            high = units if tier.up_to is None else min(units, tier.up_to)
            if high > low:
                cost += (high - low) * scaled(tier.price)
                low = high
        with localcontext(prec=60):
            return Decimal(cost // self.per).scaleb(-DECIMALS)

    def cost(self, units_so_far: int, units: int) -> Decimal:
        """Return the cost of `units` more, after `units_so_far` in the same month."""
        if units_so_far < 0 or units < 0:
            raise ValueError(f"units are never negative: {units_so_far}, {units}")
        with localcontext(prec=60):
            return self.total(units_so_far + units) - self.total(units_so_far)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    name: str
    currency: str
    # Cost of a namespace per hour of its existence.
    base_per_hour: Decimal
    # Monthly cost of operations, by units.
    operations: Tiers
    # Monthly cost of connections, by connection hours.
    connections: Tiers
    # Monthly cost of bandwidth, by message bytes at every stage.
    bandwidth: Tiers = Tiers(GIGABYTE, (Tier(None, Decimal(0)),))
    # Message sizes are counted in steps of this many bytes; 0 counts every operation as one unit.
    step_bytes: int = OPERATION_STEP_BYTES
    free_kinds: frozenset[str] = frozenset()
    refused: bool = False

    @classmethod
    def load(cls, path_or_name: Path | str) -> Sheet:
        """Load a bundled sheet by name, or a file. A name has no slash and no extension."""
        text = str(path_or_name)
        if _NAME.fullmatch(text) and "." not in text:
            ours = files.sheets()
            if text in ours:
                return cls.parse(ours[text], f"the sheet '{text}'")
            if not files.exists(text):
                raise ConfigError(
                    f"Unknown price sheet '{text}': use one of {', '.join(sorted(ours))}, or the path of a file."
                )
        return cls.parse(files.sheet_text(text), text)

    @classmethod
    def parse(cls, text: str, where: str) -> Sheet:
        """Parse a sheet; `where` names it in errors."""
        try:
            found = tomllib.loads(text)
        except ValueError as error:
            raise ConfigError(f"{where} is not TOML: {error}.") from None
        except RecursionError:
            raise ConfigError(f"{where} is nested too deep.") from None
        section = _Section(where, "", found)
        section.only("name", "currency", "base", "operations", "connections", "bandwidth")
        base = section.section("base")
        base.only("per_hour")
        operations = section.section("operations")
        operations.only("per", "step_bytes", "refused", "free_kinds", "tiers")
        connections = section.section("connections")
        connections.only("hours", "tiers")
        hours = connections.number("hours", 1, 10_000)
        bandwidth = cls.bandwidth_of(section)
        return cls(
            name=section.text("name", _NAME, "letters, digits and . _ -, at most 64"),
            currency=section.text("currency", _CURRENCY, "three capital letters, as in USD"),
            base_per_hour=base.price("per_hour"),
            operations=Tiers(operations.number("per", 1, 10**9), operations.tiers(1)),
            connections=Tiers(hours, connections.tiers(hours)),
            bandwidth=bandwidth,
            step_bytes=operations.step(),
            free_kinds=operations.kinds(),
            refused=operations.flag("refused"),
        )

    @staticmethod
    def bandwidth_of(sheet: _Section) -> Tiers:
        """Return the bandwidth prices; a sheet without them charges nothing."""
        if not sheet.has("bandwidth"):
            return Tiers(GIGABYTE, (Tier(None, Decimal(0)),))
        section = sheet.section("bandwidth")
        section.only("tiers")
        return Tiers(GIGABYTE, section.tiers(GIGABYTE))

    def billed(self, kind: str, outcome: str) -> bool:
        """Whether operations of this kind and outcome are billed."""
        return kind not in self.free_kinds and (self.refused or outcome == OK)

    def units(self, count: int, units: int) -> int:
        """Return the billed units of a record: its units, or its count if sizes do not matter."""
        return units if self.step_bytes else count

    def operations_cost(self, units_so_far: int, units: int) -> Decimal:
        """Return the cost of `units` after `units_so_far` in the same month and namespace."""
        return self.operations.cost(units_so_far, units)

    def bandwidth_cost(self, bytes_so_far: int, size_bytes: int) -> Decimal:
        """Return the cost of `size_bytes` after `bytes_so_far` in the same month and namespace."""
        return self.bandwidth.cost(bytes_so_far, size_bytes)

    def base_cost(self, hours: Decimal | int) -> Decimal:
        """Return the cost of a namespace for this many hours."""
        with localcontext(prec=60):
            return self.base_per_hour * hours

    def connections_cost(self, peak: int, hours: int) -> Decimal:
        """Return the cost of holding `peak` connections for `hours`, in a month without others."""
        return self.connections.cost(0, peak * hours)


def scaled(price: Decimal) -> int:
    """Return a price as an integer in the smallest fraction of an amount."""
    return int(price.scaleb(DECIMALS))


class _Section:
    """A section of a sheet's file; reports errors in it."""

    def __init__(self, where: str, path: str, found: Mapping[str, Any]) -> None:
        self._where = where
        # The section's name with a trailing dot; empty at the top level.
        self._path = path
        self._found = found

    def _wrong(self, field: str, wanted: str) -> ConfigError:
        has = "is missing" if field not in self._found else "is wrong"
        return ConfigError(f"In {self._where} '{self._path}{field}' {has}: give {wanted}.")

    def has(self, field: str) -> bool:
        return field in self._found

    def only(self, *fields: str) -> None:
        for field in self._found:
            if field not in fields:
                raise ConfigError(
                    f"In {self._where} '{self._path}{field}' is not known: remove it; known are {', '.join(fields)}."
                )

    def section(self, field: str) -> _Section:
        found = self._found.get(field)
        if not isinstance(found, dict):
            raise self._wrong(field, f"a section [{field}]")
        return _Section(self._where, f"{self._path}{field}.", found)

    def text(self, field: str, pattern: re.Pattern[str], wanted: str) -> str:
        found = self._found.get(field)
        if not isinstance(found, str) or not pattern.fullmatch(found):
            raise self._wrong(field, f"a text of {wanted}")
        return found

    def number(self, field: str, least: int, most: int) -> int:
        found = self._found.get(field)
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise self._wrong(field, f"a whole number from {least} to {most}")
        return found

    def flag(self, field: str) -> bool:
        found = self._found.get(field, False)
        if not isinstance(found, bool):
            raise self._wrong(field, "true or false")
        return found

    def price(self, field: str) -> Decimal:
        found = self._found.get(field)
        wanted = f'a price as a text, as in "0.80", from 0 to {PRICE_MAX} with at most {PRICE_DECIMALS} decimals'
        if not isinstance(found, str) or not re.fullmatch(rf"\d{{1,6}}(\.\d{{1,{PRICE_DECIMALS}}})?", found, re.ASCII):
            raise self._wrong(field, wanted)
        price = Decimal(found)
        if price > PRICE_MAX:
            raise self._wrong(field, wanted)
        return price

    def step(self) -> int:
        found = self._found.get("step_bytes", OPERATION_STEP_BYTES)
        if isinstance(found, bool) or found not in (0, OPERATION_STEP_BYTES):
            raise self._wrong(
                "step_bytes", f"{OPERATION_STEP_BYTES}, which is what the ledger counts in, or 0 for none"
            )
        return int(found)

    def kinds(self) -> frozenset[str]:
        found = self._found.get("free_kinds", [])
        known = {str(kind) for kind in Kind}
        if not isinstance(found, list) or not all(isinstance(each, str) and each in known for each in found):
            raise self._wrong("free_kinds", f"a list of kinds of operation, of {', '.join(sorted(known))}")
        return frozenset(found)

    def tiers(self, times: int) -> tuple[Tier, ...]:
        """Return the tiers, with their bounds multiplied by `times`."""
        found = self._found.get("tiers")
        if not isinstance(found, list) or not 1 <= len(found) <= _TIERS_MAX:
            raise self._wrong("tiers", f"a list of 1 to {_TIERS_MAX} tiers")
        made: list[Tier] = []
        low = 0
        for number, each in enumerate(found, 1):
            if not isinstance(each, dict):
                raise self._wrong("tiers", "each tier as { up_to = NUMBER, price = TEXT }")
            tier = _Section(self._where, f"{self._path}tiers[{number}].", each)
            tier.only("up_to", "price")
            last = number == len(found)
            if last and "up_to" in each:
                raise ConfigError(f"In {self._where} '{tier._path}up_to' is wrong: the last tier has none, remove it.")
            up_to = None if last else tier.number("up_to", low + 1, _COUNT_MAX)
            made.append(Tier(None if up_to is None else up_to * times, tier.price("price")))
            low = up_to or low
        return tuple(made)
