"""Certificates: generated once, kept, renewed in time, and replaced by your own."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key

from twinbus.broker.security import authority
from twinbus.broker.security.certificates import Certificates, ensure_ca, served_names
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(int(time.time() * 1000))


def shaken(server: ssl.SSLContext, ca: Path, name: str = "localhost") -> str:
    """The serial number of the certificate shown to a client that verifies it."""
    client = ssl.create_default_context(cafile=str(ca))
    left, right = socket.socketpair()
    with left, right:
        thread = threading.Thread(target=_served, args=(server, right))
        thread.start()
        try:
            with client.wrap_socket(left, server_hostname=name) as stream:
                shown = stream.getpeercert() or {}
                return str(shown["serialNumber"])
        finally:
            left.close()
            thread.join()


def _served(context: ssl.SSLContext, stream: socket.socket) -> None:
    try:
        with context.wrap_socket(stream, server_side=True) as wrapped:
            wrapped.recv(1)
    except OSError:
        pass


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_it_is_made_once_and_kept(tmp_path: Path, clock: SteppedClock) -> None:
    first = Certificates(tmp_path, ["contoso"], clock=clock)
    assert first.ready() is None
    assert list(tmp_path.iterdir()) == []
    context = first.load()
    assert first.ready() is context
    assert first.load() is context
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
        "ca.pem": 0o644,
        "ca-key.pem": 0o600,
        "server.pem": 0o600,
    }
    assert "PRIVATE" not in (tmp_path / "ca.pem").read_text()
    serial = shaken(context, first.ca_file())
    again = Certificates(tmp_path, ["contoso"], clock=clock)
    assert shaken(again.load(), first.ca_file()) == serial


def test_it_is_good_for_every_name_of_ours(tmp_path: Path, clock: SteppedClock) -> None:
    names = ["Contoso", "bus.example", "*.lab.example", "10.1.2.3", "[fe80::1]", "0.0.0.0", "not a name", "é"]
    certificates = Certificates(tmp_path, names, clock=clock)
    context = certificates.load()
    for name in ("localhost", "127.0.0.1", "::1", "contoso", "bus.example", "a.lab.example", "10.1.2.3", "fe80::1"):
        assert shaken(context, certificates.ca_file(), name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(context, certificates.ca_file(), "other.example")
    assert socket.gethostname().lower() in served_names([])
    assert "not a name" not in certificates.names


def test_a_new_name_makes_a_new_one_of_the_same_ca(tmp_path: Path, clock: SteppedClock) -> None:
    one = Certificates(tmp_path, ["contoso"], clock=clock)
    serial = shaken(one.load(), one.ca_file())
    before = one.ca_file().read_text()
    two = Certificates(tmp_path, ["contoso", "fabrikam"], clock=clock)
    assert shaken(two.load(), two.ca_file(), "fabrikam") != serial
    assert two.ca_file().read_text() == before
    # A certificate for more names is good enough for fewer.
    three = Certificates(tmp_path, ["contoso"], clock=clock)
    assert shaken(three.load(), one.ca_file()) == shaken(two.load(), one.ca_file())


def test_it_is_renewed_before_its_end_also_while_running(tmp_path: Path, clock: SteppedClock) -> None:
    certificates = Certificates(tmp_path, clock=clock)
    serial = shaken(certificates.load(), certificates.ca_file())
    clock.step(ms=360 * DAY_MS)
    assert shaken(certificates.load(), certificates.ca_file()) == serial
    clock.step(ms=8 * DAY_MS)
    assert certificates.ready() is None
    certificates.load()
    renewed = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    assert f"{renewed.serial_number:X}" != serial.lstrip("0")
    assert renewed.not_valid_after_utc.timestamp() * 1000 > clock.now_ms() + 390 * DAY_MS


def test_the_ca_is_signed_anew_with_the_same_key(tmp_path: Path, clock: SteppedClock) -> None:
    old = ensure_ca(tmp_path, clock).read_text()
    clock.step(ms=(authority.CA_DAYS - authority.SERVER_DAYS + 1) * DAY_MS)
    new = ensure_ca(tmp_path, clock).read_text()
    first, second = (x509.load_pem_x509_certificate(pem.encode()) for pem in (old, new))
    assert first.serial_number != second.serial_number
    assert first.public_key() == second.public_key()
    assert first.subject == second.subject
    # So clients that have the old one trust a certificate signed by the new one.
    Certificates(tmp_path, clock=clock).load()
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    server.verify_directly_issued_by(first)


@pytest.mark.parametrize("damage", ["", "no PEM at all", '{"names": 7}\n', '{"names": [], "ca": "x"}\n'])
def test_a_damaged_certificate_is_made_anew(tmp_path: Path, clock: SteppedClock, damage: str) -> None:
    Certificates(tmp_path, clock=clock).load()
    (tmp_path / "server.pem").write_text(damage)
    certificates = Certificates(tmp_path, clock=clock)
    assert shaken(certificates.load(), certificates.ca_file())


def test_a_foreign_ca_certificate_is_replaced_and_a_damaged_key_is_told(tmp_path: Path, clock: SteppedClock) -> None:
    other = ensure_ca(tmp_path / "other", clock)
    ensure_ca(tmp_path, clock)
    (tmp_path / "ca.pem").write_text(other.read_text())
    certificates = Certificates(tmp_path, clock=clock)
    assert shaken(certificates.load(), certificates.ca_file())
    assert (tmp_path / "ca.pem").read_text() != other.read_text()
    (tmp_path / "ca-key.pem").write_text("rubbish")
    with pytest.raises(ConfigError, match=r"remove ca-key\.pem"):
        ensure_ca(tmp_path, clock)


def test_two_processes_agree(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from twinbus.broker.security.certificates import Certificates\n"
        "Certificates(Path(sys.argv[1]), ['contoso']).load()"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(30) for process in both] == [0, 0, 0]
    certificates = Certificates(tmp_path, ["contoso"])
    assert shaken(certificates.load(), tmp_path / "ca.pem")


def test_a_kept_certificate_needs_no_cryptography(tmp_path: Path) -> None:
    Certificates(tmp_path, ["contoso"]).load()
    script = (
        "import sys; from pathlib import Path; from twinbus.broker.security.certificates import Certificates\n"
        "Certificates(Path(sys.argv[1]), ['contoso']).load(); print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert done.stdout == "False\n"


# --- the owner's own --------------------------------------------------------------------------------------------------


def owned(folder: Path, clock: SteppedClock) -> tuple[Path, Path]:
    """A certificate and its key in separate files."""
    key = authority.make_key()
    ca = ensure_ca(folder / "ca", clock)
    ca_key = (folder / "ca" / "ca-key.pem").read_text()
    certificate = authority.make_server(ca.read_text(), ca_key, key, clock.now_ms(), ["bus.example"])
    (folder / "cert.pem").write_text(certificate)
    (folder / "key.pem").write_text(key)
    return folder / "cert.pem", folder / "key.pem"


def test_the_owners_is_shown_and_read_again_when_it_changes(tmp_path: Path, clock: SteppedClock) -> None:
    certificate, key = owned(tmp_path, clock)
    data = tmp_path / "data"
    certificates = Certificates(data, ["contoso"], certificate=certificate, key=key, clock=clock)
    assert certificates.own
    context = certificates.load()
    serial = shaken(context, tmp_path / "ca" / "ca.pem", "bus.example")
    assert not data.exists()
    clock.step(seconds=61)
    assert certificates.ready() is None
    assert certificates.load() is context
    owned(tmp_path, clock)
    os.utime(certificate, (0, 0))
    assert certificates.load() is context
    clock.step(seconds=61)
    assert shaken(certificates.load(), tmp_path / "ca" / "ca.pem", "bus.example") != serial


def test_the_owners_dates_are_warned_of(tmp_path: Path, clock: SteppedClock, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = owned(tmp_path, clock)
    certificates = Certificates(tmp_path, certificate=certificate, key=key, clock=clock)

    def warned() -> str:
        caplog.clear()
        clock.step(seconds=61)
        certificates.load()
        assert [each.getMessage() for each in caplog.records] == ([certificates.warning] if caplog.records else [])
        return caplog.text

    certificates.load()
    assert certificates.warning == ""
    clock.step(seconds=(authority.SERVER_DAYS - 14) * 86_400)
    assert "expires on" in warned()
    assert warned() == "", "only once"
    clock.step(seconds=14 * 86_400)
    assert "expired on" in warned()
    assert warned() == ""
    assert "expired on" in certificates.warning
    fresh = Certificates(tmp_path, certificate=certificate, key=key, clock=clock)
    fresh.load()
    assert "expired on" in fresh.warning, "it starts, but not without a word"
    owned(tmp_path, clock)
    assert warned() == ""
    assert certificates.warning == ""


def test_a_certificate_that_is_not_valid_yet(tmp_path: Path, clock: SteppedClock) -> None:
    certificate, key = owned(tmp_path, clock)
    early = SteppedClock(clock.now_ms() - 30 * 86_400_000)
    certificates = Certificates(tmp_path, certificate=certificate, key=key, clock=early)
    certificates.load()
    assert "not valid before" in certificates.warning


def test_a_renewal_half_done_leaves_the_old_one(tmp_path: Path, clock: SteppedClock) -> None:
    certificate, key = owned(tmp_path, clock)
    certificates = Certificates(tmp_path, certificate=certificate, key=key, clock=clock)
    context = certificates.load()
    key.unlink()
    clock.step(seconds=61)
    assert certificates.load() is context


def test_both_may_be_in_one_file(tmp_path: Path, clock: SteppedClock) -> None:
    certificate, key = owned(tmp_path, clock)
    certificate.write_text(certificate.read_text() + key.read_text())
    certificates = Certificates(tmp_path, certificate=certificate, clock=clock)
    assert shaken(certificates.load(), tmp_path / "ca" / "ca.pem", "bus.example")


def test_what_cannot_be_used_is_told(tmp_path: Path, clock: SteppedClock) -> None:
    certificate, key = owned(tmp_path, clock)

    def refusal(certificate: Path, key: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            Certificates(tmp_path, certificate=certificate, key=key, clock=clock).load()
        return str(caught.value)

    assert "none.pem with the key" in refusal(tmp_path / "none.pem", key)
    assert "cannot be used" in refusal(certificate, certificate)
    other = tmp_path / "other.pem"
    other.write_text(authority.make_key())
    assert "KEY_VALUES_MISMATCH" in refusal(certificate, other).upper().replace(" ", "_")
    secret = load_key(key.read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    other.write_bytes(secret)
    assert "without a password" in refusal(certificate, other)
