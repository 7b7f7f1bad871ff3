#!/usr/bin/env bash
# Fails if a compose file is invalid, or if a file that it mounts is missing. Starts nothing and needs no daemon.
set -euo pipefail
cd "$(dirname "$0")/.."
file=$1

if docker compose version >/dev/null 2>&1; then
  compose=(docker compose)
elif command -v docker-compose >/dev/null; then
  compose=(docker-compose)
else
  echo "docker-compose is missing; scripts/setup-debian.sh installs it on Debian" >&2
  exit 1
fi
config=$("${compose[@]}" -f "$file" config)

# Docker would silently create a missing mounted folder, empty.
while read -r source; do
  if [ ! -e "$source" ]; then
    echo "$file mounts $source, which does not exist" >&2
    exit 1
  fi
done < <(sed -n -e 's/^ *- \(\/[^:]*\):\/.*/\1/p' -e 's/^ *source: \(\/.*\)/\1/p' <<<"$config")
echo "$file: services $("${compose[@]}" -f "$file" config --services | sort | paste -sd ' ')"
