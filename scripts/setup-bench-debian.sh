#!/usr/bin/env bash
# Installs what the benchmarks need on Debian: gunicorn, uWSGI with its Python plugin, and the load generator wrk. Does nothing if all
# are installed.
set -euo pipefail

# required file -> Debian package that contains it
needed=(
  "/usr/bin/gunicorn gunicorn"
  "/usr/bin/uwsgi uwsgi-core"
  "/usr/lib/uwsgi/plugins/python3_plugin.so uwsgi-plugin-python3"
  "/usr/bin/wrk wrk"
)

missing=()
for entry in "${needed[@]}"; do
  read -r file package <<<"$entry"
  [ -e "$file" ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup-bench: nothing to install"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "setup-bench: this is not Debian; install with the system's package manager: ${missing[*]}" >&2
  exit 1
fi
install=(apt-get)
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "setup-bench: no permission to install; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  install=(sudo -n apt-get)
fi
echo "setup-bench: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${install[@]}" update -qq
"${install[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
