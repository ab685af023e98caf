"""Clients that were refused for their key, token or rights: counted for the metrics, logged, the latest kept.

- Anybody may be refused any number of times. The log names the first refusal of an address, policy and reason at once
  and then sums those that follow, a line a minute; what is remembered for that is bounded.
- It has no key, no token, no signature. A policy is named only if it exists: what a client gives as its name may be
  a key in the wrong place.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass

from twinbus.clock import Clock
from twinbus.limits import REFUSAL_LOG_INTERVAL_MS, REFUSAL_NAME_CHARS_MAX, REFUSALS_KEPT, REFUSALS_LOGGED_MAX

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedClient:
    """One client that was refused."""

    at_ms: int
    reason: str
    # The client's host.
    address: str
    # The policy whose key it claims to have, and what it wanted; '' if it did not say.
    policy: str
    entity: str
    # As in the error that the client got; '' if that had none.
    tracking_id: str


@dataclass(slots=True)
class _Logged:
    """The last log line about an address, policy and reason."""

    at_ms: int
    left_out: int = 0


class Refusals:
    """The refusals of one namespace."""

    def __init__(self, namespace: str, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock
        # By reason; the reasons are ours, so there are few.
        self.counts: dict[str, int] = {}
        # Oldest first.
        self.latest: deque[RefusedClient] = deque(maxlen=REFUSALS_KEPT)
        # By address, policy and reason; least recently logged first.
        self._logged: OrderedDict[tuple[str, str, str], _Logged] = OrderedDict()

    def add(self, reason: str, address: str, *, policy: str = "", entity: str = "", tracking_id: str = "") -> None:
        """Record a refusal. `address` is the client's host, without its port."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        refusal = RefusedClient(
            self._clock.now_ms(), reason, _shortened(address), _shortened(policy), _shortened(entity), tracking_id
        )
        self.latest.append(refusal)
        key = (refusal.address, refusal.policy, reason)
        now_ms = self._clock.steady_ms()
        logged = self._logged.get(key)
        if logged is not None and now_ms - logged.at_ms < REFUSAL_LOG_INTERVAL_MS:
            logged.left_out += 1
            return
        self._log(refusal, 0 if logged is None else logged.left_out)
        self._logged[key] = _Logged(now_ms)
        self._logged.move_to_end(key)
        if len(self._logged) > REFUSALS_LOGGED_MAX:
            self._logged.popitem(last=False)

    def _log(self, refusal: RefusedClient, left_out: int) -> None:
        fields = {
            "policy": refusal.policy,
            "entity": refusal.entity,
            "tracking_id": refusal.tracking_id,
            "left_out": left_out,
        }
        known = [f"{name.replace('_', ' ')} {value}" for name, value in fields.items() if value and name != "left_out"]
        if left_out:
            known.append(f"{left_out} more since the last line")
        logger.warning(
            "%s refused %s: %s%s",
            self._namespace,
            refusal.address or "a client",
            refusal.reason,
            f" ({', '.join(known)})" if known else "",
            extra={
                "fields": {
                    "namespace": self._namespace,
                    "address": refusal.address,
                    "reason": refusal.reason,
                    **fields,
                }
            },
        )


def _shortened(name: str) -> str:
    return name if len(name) <= REFUSAL_NAME_CHARS_MAX else f"{name[:REFUSAL_NAME_CHARS_MAX]}..."
