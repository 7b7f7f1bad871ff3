#!/usr/bin/env bash
# Prints how many lines of Go each package has, without and in tests.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -- '*.go' | while read -r file; do
  [ -e "$file" ] || continue
  package=$(dirname "$file")
  [ "$package" != . ] || package=tempool
  case $file in *_test.go) kind=test ;; *) kind=code ;; esac
  echo "$package $kind $(wc -lc <"$file")"
done | awk '
  { lines[$1, $2] += $3; all[$2] += $3; bytes += $2 == "code" ? $4 : 0; names[$1] }
  END {
    form = "%7d %7d  %s\n"
    print "   code    test  package"
    for (name in names) printf form, lines[name, "code"], lines[name, "test"], name | "sort -k3"
    close("sort -k3")
    printf form, all["code"], all["test"], sprintf("in all; %.2f MB of code", bytes / 1e6)
  }'
