#!/usr/bin/env bash
# Fails and says where the tracked files break a rule that is about the text itself.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
# refuse SENTENCE GREP-ARGUMENTS… fails if git grep finds anything.
refuse() {
  local sentence=$1 found
  shift
  if found=$(git grep -nE "$@"); then
    printf '%s\n%s\n\n' "$sentence" "$found" >&2
    failed=1
  fi
}

# The brackets keep the patterns from finding themselves.
refuse 'A path of one machine; write it relative to the repository or use a temporary folder:' \
  '(^|[^A-Za-z0-9_.-])/(w[o]rk|r[o]ot)/'
refuse 'The host of a package registry; the tools know theirs:' \
  'registry\.npm[j]s|proxy\.go[l]ang|py[p]i\.org|deb\.deb[i]an'
refuse 'A test that waits for the clock; wait for the thing itself, with a deadline:' \
  'time\.Sleep\(' -- '*_test.go'
refuse 'A test that is skipped checks nothing; have what it needs installed by scripts/:' \
  '\bt\.Skip(f|Now)?\(' -- '*_test.go'
refuse 'Unfinished by its own words; finish it or leave it out:' \
  '\b(TODO|FIXME|XXX)\b' -- '*.go' '*.py' '*.mjs' '*.js' '*.ts'

vague=$(git ls-files | grep -E '(^|/)(utils?|helpers?|common|misc|base|manager)(/|\.[a-z]+$)' || true)
if [ -n "$vague" ]; then
  printf 'Names that explain nothing:\n%s\n\n' "$vague" >&2
  failed=1
fi

while read -r file; do
  [ -e "$file" ] || continue
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 450 ]; then
    printf '%s has %d lines, more than 450: there is a second idea in it.\n\n' "$file" "$lines" >&2
    failed=1
  fi
done < <(git ls-files -- '*.go' ':!*_test.go')

exit $failed
