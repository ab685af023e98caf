"""Written by scripts/unasync.py from _async/pairing.py: read and change that file, not this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from twinbus.clock import Clock
from twinbus.ledger.words import Event
from twinbus.limits import PAIRED_TIMEOUT_S_MAX, PAIRING_PAUSE_S_MAX, PAIRING_PAUSE_S_MIN
from twinbus.paired._sync.namespaces import PairedNamespace
from twinbus.paired._sync.provision import find_home, find_queues, name_of
from twinbus.paired.backlog import Found
from twinbus.paired.classify import cause_of
from twinbus.paired.errors import PairFaultedError, PairingError
from twinbus.paired.events import Events, logger
from twinbus.paired.homes import Home, NameSource
from twinbus.paired.options import PairingOptions
from twinbus.paired.rotation import Rotation
from twinbus.paired.synchronization import Signal, Tasks


class BacklogSearch:
    """The search for the backlog queues of a pair."""

    def __init__(
        self,
        primary: PairedNamespace,
        secondary: PairedNamespace,
        *,
        options: PairingOptions,
        events: Events,
        clock: Clock,
        rng: Random,
        tasks: Tasks,
        on_paired: Callable[[], None],
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._options = options
        self._events = events
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._on_paired = on_paired
        self.rotation: Rotation | None = None
        self.home: Home | None = None
        self.found: Found | None = None
        self.failure: PairingError | None = None
        self.changed = Signal()
        self._searches = 0
        self._wanted = False
        self._started = False
        self._mending = False
        self._confirming = False
        self._ended = False
        self._closed: str | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the search, once."""
        with self._lock:
            if self._started:
                return
            self._started = True
        self._tasks.spawn(self._search)

    def close(self, reason: str) -> None:
        """The secondary is gone: a caller that wants to divert gets the reason."""
        self._closed = reason
        self.end()

    def end(self) -> None:
        """Stop searching."""
        self.abandon()
        self.changed.pulse()

    def abandon(self) -> None:
        """Stop searching without waking waiters, which is safe on any thread."""
        self._ended = True

    def wait(self, seconds: float | None) -> None:
        """Wait for the queues; raises PairingError if a search fails or the time is up."""
        before = self._searches
        self._wanted = True
        self.start()
        self.changed.pulse()
        ends_ms = None
        if seconds is not None:
            ends_ms = self._clock.now_ms() + round(min(seconds, PAIRED_TIMEOUT_S_MAX) * 1000)
        while self.rotation is None:
            if self._searches != before and self.failure is not None:
                raise self.failure
            left_s = 1.0 if ends_ms is None else (ends_ms - self._clock.now_ms()) / 1000
            if left_s <= 0 or self._ended:
                raise self.failure or self._unfinished()
            self.changed.wait(min(left_s, 0.1))

    def usable(self, left_s: float, *, hold: bool) -> Rotation | None:
        """The backlog queues; None if waiting for them may help; raises if not."""
        if self._closed is not None:
            raise PairFaultedError(self._closed)
        if self.rotation is not None:
            return self.rotation
        self.start()
        failure = self.failure
        if left_s <= 0 or self._ended or (failure is not None and not (hold and failure.temporary)):
            raise failure or self._unfinished()
        return None

    def missing(self) -> None:
        """A backlog queue no longer exists: create it again."""
        with self._lock:
            if self._mending or not self._options.create_backlog_queues:
                return
            self._mending = True
        self._tasks.spawn(self._mend)

    def _unfinished(self) -> PairingError:
        return PairingError(f"The backlog queues in the secondary '{self._events.secondary}' are still looked for.")

    def _search(self) -> None:
        pause_s = PAIRING_PAUSE_S_MIN
        while self.rotation is None and not self._ended:
            self._wanted = False
            try:
                found = self._find()
                found.check(self._events.secondary)
            except Exception as error:
                self._failed(error)
            else:
                self._succeeded(found)
                return
            left_s = pause_s
            while left_s > 0 and not self._ended and not self._wanted:
                self.changed.wait(min(left_s, 0.1))
                left_s -= 0.1
            pause_s = min(pause_s * 2, PAIRING_PAUSE_S_MAX)

    def _find(self) -> Found:
        options, events = self._options, self._events
        try:
            home = find_home(self._primary, options.primary_name, timeout_s=options.try_timeout)
            found = self._queues_of(home)
            if found.names:
                name = name_of(self._secondary, timeout_s=options.try_timeout)
                events.rename(secondary=name)
            return found
        finally:
            events.named()

    def _queues_of(self, home: Home) -> Found:
        """Find or create the backlog queues of this primary, from now on the pair's."""
        if home != self.home:
            self.home = home
            self._events.rename(primary=home.name)
            self._tell(home)
        count = self._options.backlog_queue_count
        if not self._options.create_backlog_queues:
            return Found(home.names(count))
        return find_queues(self._secondary, home, count)

    def _tell(self, home: Home) -> None:
        """Report a name that the primary has not confirmed."""
        if home.source is NameSource.GUESS:
            reason = "is not reached" if not home.answered else "does not tell its name to this credential"
            logger.warning(
                "The primary at %s %s, and its name is not known here: until it is, messages are diverted to '%s/...', "
                "where they wait until `twinbus backlog adopt` says whose they are.",
                home.address.place,
                reason,
                home.name,
            )
        elif home.source is NameSource.REMEMBERED:
            logger.warning(
                "The primary at %s is not reached: its name is '%s', as it said earlier.", home.address.place, home.name
            )
        else:
            return
        self._events.emit(Event.NAME_UNCONFIRMED, cause=home.source.value)

    def _succeeded(self, found: Found) -> None:
        self.found = found
        if found.failures:
            logger.warning("%s", found.report(self._events.secondary))
        if found.taken:
            logger.warning(
                "In the secondary '%s', '%s' holds the backlog of another primary of the same name: this one's is in "
                "'%s'.",
                self._events.secondary,
                found.taken[0],
                found.names[0],
            )
        self.failure = None
        self._on_paired()
        self.rotation = Rotation(
            found.names, pause_ms=round(self._options.backlog_pause * 1000), clock=self._clock, rng=self._rng
        )
        self._searches += 1
        self.changed.pulse()
        if self.home is not None and not self.home.answered:
            self.confirm()

    def confirm(self) -> None:
        """Ask the primary who it is, until it answers: it may be another one than before."""
        with self._lock:
            if self._confirming or self._ended or self.home is None or self.home.address.azure:
                return
            self._confirming = True
        self._tasks.spawn(self._confirm)

    def _confirm(self) -> None:
        pause_s = PAIRING_PAUSE_S_MIN
        try:
            while not self._ended:
                self._rest(pause_s)
                pause_s = min(pause_s * 2, PAIRING_PAUSE_S_MAX)
                if self._ended or self._confirmed():
                    return
        finally:
            self._confirming = False

    def _confirmed(self) -> bool:
        """Ask once; True if the primary has answered, and the backlog queues are those of the answer."""
        before = self.home
        try:
            home = find_home(self._primary, self._options.primary_name, timeout_s=self._options.try_timeout)
            if not home.answered:
                return False
            if before is not None and (home.name, home.identity) == (before.name, before.identity):
                self.home = home
                return True
            found = self._queues_of(home)
            found.check(self._events.secondary)
        except Exception as error:
            logger.debug("the primary's name is not confirmed yet: %s", cause_of(error))
            self.home = before
            return False
        self._succeeded(found)
        return True

    def _rest(self, seconds: float) -> None:
        while seconds > 0 and not self._ended:
            self.changed.wait(min(seconds, 0.1))
            seconds -= 0.1

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, PairingError):
            error = PairingError(f"The secondary '{self._events.secondary}' cannot be paired: {error}", error=error)
        self.failure = error
        inner = error.inner_exception
        cause = cause_of(error if inner is None else inner)
        logger.warning("%s. Nothing can be diverted until that succeeds.", str(error).rstrip("."))
        self._events.emit(Event.PAIRING_FAILED, cause=cause)
        self._searches += 1
        self.changed.pulse()

    def _mend(self) -> None:
        """Recreate backlog queues that somebody has deleted."""
        try:
            rotation = self.rotation
            if rotation is None:
                return
            home = self.home
            if home is None:
                return
            found = find_queues(self._secondary, home, self._options.backlog_queue_count)
            if found.made:
                logger.warning("created again in the secondary '%s': %s", self._events.secondary, ", ".join(found.made))
                for name in found.made:
                    rotation.revive(name)
                self.changed.pulse()
        except Exception as error:
            logger.warning("backlog queues that are gone could not be created again: %s", cause_of(error))
        finally:
            self._mending = False
