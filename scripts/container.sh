#!/usr/bin/env bash
# Does what docs/containers.md says, with podman, and checks what comes of it. Leaves nothing behind but the image.
# BASE=image: another base than the default; where none can be pulled, one is made with debootstrap.
# BUILD_ARGS: further arguments of `podman build`, such as --network=host.
set -euo pipefail
cd "$(dirname "$0")/.."
default=$(sed -n 's/^ARG BASE=//p' Containerfile)
if [[ -z ${BASE:-} ]] && ! podman pull --quiet "$default"; then
    BASE=localhost/twinbus-base
    folder=$(mktemp --directory)
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates stable "$folder"
    tar --create --directory "$folder" . | podman import --quiet - "$BASE"
    rm -rf "$folder"
fi
read -ra more <<<"${BUILD_ARGS:-} ${BASE:+--build-arg=BASE=$BASE}"

clean() {
    podman rm --force --time 10 twinbus twinbus-keys >/dev/null 2>&1 || true
    podman volume rm --force twinbus-data twinbus-keys >/dev/null 2>&1 || true
}
trap clean EXIT
clean

healthy() {
    for _ in $(seq 60); do
        podman healthcheck run twinbus >/dev/null 2>&1 && return
        sleep 1
    done
    podman logs twinbus
    return 1
}

podman build --format docker --tag twinbus "${more[@]}" .
podman run --detach --name twinbus --publish 127.0.0.1:5672:5672 --publish 127.0.0.1:5300:5300 --volume twinbus-data:/data twinbus
healthy
podman healthcheck run twinbus
podman exec twinbus twinbus queue create orders
podman exec twinbus id --user | grep --line-regexp 10001
podman logs twinbus 2>&1 | grep 'Warning: every machine that reaches 0.0.0.0:5672'
python3 -c 'import urllib.request as r; print(r.urlopen("http://127.0.0.1:5300/health").read().decode())'

# The data survives the container.
podman rm --force --time 10 twinbus
podman run --detach --name twinbus --publish 127.0.0.1:5672:5672 --volume twinbus-data:/data twinbus
healthy
podman exec twinbus twinbus queue list | grep orders
podman rm --force --time 10 twinbus

# An application beside it, as compose.yaml has it.
podman-compose --podman-build-args="--format docker ${more[*]}" --file examples/container/compose.yaml up --build --detach
podman wait container_app_1
podman-compose --file examples/container/compose.yaml logs app | grep 'received: one coffee'
podman-compose --file examples/container/compose.yaml down --volumes

# With keys: plaintext from elsewhere is refused, a certificate is made.
podman run --detach --name twinbus-keys --publish 5671:5671 --volume twinbus-keys:/data twinbus serve --namespace contoso:5671 --host 0.0.0.0 --tls-name bus.example --data /data
sleep 5
podman exec twinbus-keys twinbus trust --data /data
podman logs twinbus-keys 2>&1 | grep 'contoso on 0.0.0.0:5671'
echo "All of docs/containers.md works."
