#!/usr/bin/env bash
# Fails and lists the Go files that gofmt would change.
set -euo pipefail
cd "$(dirname "$0")/.."

# git also lists files that were deleted from the disk.
mapfile -t files < <(git ls-files -co --exclude-standard -- '*.go' | while read -r file; do [ -e "$file" ] && echo "$file"; done)
unformatted=$(gofmt -l "${files[@]}")
if [ -n "$unformatted" ]; then
  echo "gofmt would change these files; run gofmt -w on them:" >&2
  echo "$unformatted" >&2
  exit 1
fi
