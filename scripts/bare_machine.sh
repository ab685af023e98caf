#!/usr/bin/env bash
# Runs a command of the README on a machine with nothing but Python, pip, venv and make, and logs it by the second.
#   scripts/bare_machine.sh make MACHINE               make the machine, a folder, with debootstrap (as root)
#   scripts/bare_machine.sh run MACHINE LOG make demo  run a command there, in a new clone
# COLD=1 empties pip's cache first, KEEP=1 keeps the clone of the run before. pip's settings (PIP_*) and the certificates
# of this machine are passed on, nothing else is.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
action=$1 machine=$(realpath "$2")
shift 2

if [[ $action == make ]]; then
    exec debootstrap --variant=minbase --include=python3,python3-venv,make,ca-certificates "${SUITE:-bookworm}" "$machine"
fi

log=$1
shift
cp /etc/resolv.conf /etc/hosts "$machine/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$machine/etc/ssl/certs/"
cp "$here/scripts/stopwatch.py" "$machine/root/"
[[ ${COLD:-} != 1 ]] || rm -rf "$machine/root/.cache"
if [[ ${KEEP:-} != 1 ]]; then
    rm -rf "$machine/root/twinbus"
    git clone --quiet "$here" "$machine/root/twinbus"
fi
mapfile -t settings < <(env | grep '^PIP_' || true)
code=0
# Mounts and processes of its own: both are gone at the end.
unshare --mount --propagation private --pid --fork --kill-child sh -c '
    machine=$1; shift
    mount -t proc proc "$machine/proc"
    mount --rbind /dev "$machine/dev"
    exec chroot "$machine" "$@"' sh "$machine" \
    /usr/bin/env -i "${settings[@]}" HOME=/root TERM=xterm-256color LANG=C.UTF-8 \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    sh -c 'cd /root/twinbus && exec python3 /root/stopwatch.py /root/log "$@"' sh "$@" || code=$?
cp "$machine/root/log" "$log"
exit $code
