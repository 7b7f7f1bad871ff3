#!/usr/bin/env bash
# Fails and lists the places where tracked files break a rule about text.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
# refuse SENTENCE GREP-ARGUMENTS… fails if git grep finds a match.
refuse() {
  local sentence=$1 found
  shift
  if found=$(git grep -nE "$@"); then
    printf '%s\n%s\n\n' "$sentence" "$found" >&2
    failed=1
  fi
}

# The brackets keep the patterns from matching themselves.
refuse 'Path of one machine; use a path relative to the repository or a temporary folder:' \
  '(^|[^A-Za-z0-9_.-])/(w[o]rk|r[o]ot)/'
refuse 'Host of a package registry; leave it to the configuration of the tools:' \
  'registry\.npm[j]s|proxy\.go[l]ang|py[p]i\.org|deb\.deb[i]an'
refuse 'Fixed wait in a test; wait for the condition, with a deadline:' \
  'time\.Sleep\(' -- '*_test.go'
refuse 'Skipped test; say what it needs with internal/need:' \
  '\bt\.Skip(f|Now)?\(' -- '*.go' ':!internal/need/need.go'
refuse 'Unfinished code; finish it or remove it:' \
  '\b(TODO|FIXME|XXX)\b' -- '*.go' '*.py' '*.mjs' '*.js' '*.ts'

vague=$(git ls-files | grep -E '(^|/)(utils?|helpers?|common|misc|base|manager)(/|\.[a-z]+$)' || true)
if [ -n "$vague" ]; then
  printf 'Names that say nothing:\n%s\n\n' "$vague" >&2
  failed=1
fi

long=$(git ls-files -z -- '*.go' ':!*_test.go' | xargs -0 wc -l 2>/dev/null | awk '$2 != "total" && $1 > 450 { print $2 " has " $1 " lines" }')
if [ -n "$long" ]; then
  printf 'More than 450 lines; split the file:\n%s\n\n' "$long" >&2
  failed=1
fi

exit $failed
