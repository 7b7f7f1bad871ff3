#!/usr/bin/env bash
# Installs what the tests need and a fresh Debian machine with Go, Python 3, Node and git may lack. Does nothing where
# all of it is there, and never installs a language.
set -euo pipefail

# command that must be there -> Debian package that brings it
needed=(
  "make make"
  "gcc gcc"                     # the race detector links with it
  "ps procps"
  "docker-compose docker-compose"
)

missing=()
for entry in "${needed[@]}"; do
  read -r command package <<<"$entry"
  command -v "$command" >/dev/null || missing+=("$package")
done
# gcc alone does not bring the C library's headers.
if command -v dpkg >/dev/null && ! [ -e /usr/include/stdlib.h ]; then
  missing+=(libc6-dev)
fi
for language in go python3 node git; do
  if ! command -v "$language" >/dev/null; then
    echo "setup: $language is missing; install it first, README.md says which version" >&2
    exit 1
  fi
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: nothing to install"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian; install with the system's own means: ${missing[*]}" >&2
  exit 1
fi
install=(apt-get)
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "setup: not allowed to install; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  install=(sudo -n apt-get)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${install[@]}" update -qq
"${install[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
