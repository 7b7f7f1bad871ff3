#!/usr/bin/env bash
# Installs what the benchmarks need on Debian: gunicorn, uWSGI with its Python plugin, and the load generator wrk. Does nothing if all
# are installed.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

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
prepare_install setup-bench "${missing[@]}"
"${install[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
