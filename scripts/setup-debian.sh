#!/usr/bin/env bash
# Installs what the tests need on a Debian machine with Go, Python 3, Node and git. Does nothing if all is installed, and never installs
# a language.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

# required command -> Debian package that contains it
needed=(
  "make make"
  "gcc gcc"                     # the race detector links with it
  "ps procps"
  "docker-compose docker-compose"
  "chromium chromium"           # a large program, for tests of memory
  "ip iproute2"
  "tmux tmux"                   # a terminal for the tests of tempool top
  "nft nftables"                # cuts the links of test machines
  "podman podman"               # runs workers of kind "container"
  "runc runc"                   # the runtime of their tests
  "debootstrap debootstrap"     # the root file system of the packages' test
  "systemd-analyze systemd"     # checks their unit
  "jq jq"                       # and the list of their modules
  "mypy mypy"                   # checks the types of the Python SDK and its examples
)

missing=()
for entry in "${needed[@]}"; do
  read -r command package <<<"$entry"
  command -v "$command" >/dev/null || missing+=("$package")
done
# gcc does not depend on the C library's headers.
if command -v dpkg >/dev/null && ! [ -e /usr/include/stdlib.h ]; then
  missing+=(libc6-dev)
fi
# A library of Debian's own Python, for examples/model.
if ! /usr/bin/python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("sklearn") is None)' 2>/dev/null; then
  missing+=(python3-sklearn)
fi
# The library of the asynchronous client (tempool[async]), and what builds the wheel.
if ! /usr/bin/python3 -c 'import httpx' 2>/dev/null; then
  missing+=(python3-httpx)
fi
if ! /usr/bin/python3 -c 'import build, wheel' 2>/dev/null; then
  missing+=(python3-build python3-venv python3-wheel)
fi
for language in go python3 node git; do
  if ! command -v "$language" >/dev/null; then
    echo "setup: $language is missing; install the version that README.md names" >&2
    exit 1
  fi
done

# redis-server is the program redis-check-rdb of the package redis-tools under another name; the package redis-server would install a
# service.
server=()
if ! command -v redis-server >/dev/null; then
  server=(redis-server)
  command -v redis-check-rdb >/dev/null || missing+=(redis-tools)
fi

# Install only what checks the alerts, from packages that would install services.
tool=()
command -v promtool >/dev/null || tool+=(promtool)
command -v prometheus >/dev/null || tool+=(prometheus)
command -v amtool >/dev/null || tool+=(amtool)

if [ ${#missing[@]} -eq 0 ] && [ ${#tool[@]} -eq 0 ] && [ ${#server[@]} -eq 0 ]; then
  echo "setup: nothing to install"
  exit 0
fi
prepare_install setup "${missing[@]}" "${tool[@]}" "${server[@]}"
if [ ${#missing[@]} -gt 0 ]; then
  "${install[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ${#server[@]} -gt 0 ]; then
  "${install[@]/#apt-get/ln}" -s "$(command -v redis-check-rdb)" /usr/local/bin/redis-server
fi
declare -A package_of=([promtool]=prometheus [prometheus]=prometheus [amtool]=prometheus-alertmanager)
for name in "${tool[@]}"; do
  package=${package_of[$name]}
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq "$package" 2>/dev/null)
  dpkg-deb --fsys-tarfile "$folder/${package}"_*.deb | tar -x -C "$folder" "./usr/bin/$name"
  "${install[@]/#apt-get/install}" -m 0755 "$folder/usr/bin/$name" "/usr/local/bin/$name"
  rm -rf "$folder"
done
