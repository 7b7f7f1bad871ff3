#!/usr/bin/env bash
# Runs go test with its arguments, by gotestsum: it shows which package has passed and what a failed test printed. Then it lists the slowest tests,
# and ends with one line: what the skipped tests need (internal/need), and who provides that. GOTESTSUM is its path; the exit code is its own.
set -uo pipefail

events=$(mktemp)
trap 'rm -f "$events"' EXIT

# The shim of a version manager, such as pyenv's, runs a shell at each start, which costs five times as much as Python's own, and the tests start
# Python a thousand times.
python=$(python3 -c 'import sys; print(sys.executable)') && PATH=$(dirname "$python"):$PATH

result=0
"$GOTESTSUM" --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped --jsonfile "$events" -- "$@" || result=$?
"$GOTESTSUM" tool slowest --num 10 --jsonfile "$events"

skipped=$(grep -c '"Action":"skip".*"Test":' "$events")
missing=$(sed -n 's/.*"Output":" .*: missing: \(.*\)\\n"}$/\1/p' "$events" | sed 's/, /\n/g' | sort -u)
if [ "$skipped" = 0 ]; then
  echo 'No test was skipped.'
else
  printf '%s skipped: %s' "$skipped" "$(paste -sd, <<<"$missing" | sed 's/,/, /g')"
  grep -qvE '^(root$|the right to )' <<<"$missing" && printf '; scripts/setup-debian.sh installs programs'
  grep -qE '^(root$|the right to )' <<<"$missing" && printf '; root has the rights, but for some containers'
  echo
fi
exit $result
