#!/usr/bin/env bash
# Makes the packages of this tree in dist/: for each target an archive and a list of the modules in it (CycloneDX), deb and
# rpm for Linux, and their checksums. Each archive has the stripped program, completions and man pages. TARGETS chooses, as in TARGETS=linux/amd64.
set -euo pipefail
cd "$(dirname "$0")/.."
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
most=$((45 * 1024 * 1024)) # bytes of a stripped program

version=${VERSION:-$(cat internal/buildinfo/VERSION)}
commit=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git show -s --format=%ct HEAD)
date=$(TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD)
info=github.com/tempool/tempool/internal/buildinfo
dist=${DIST:-dist}
rm -rf "$dist"
mkdir -p "$dist/completions"

go run ./cmd/tempool/manpages "$dist/man"
gzip -9n "$dist"/man/*.1
for shell in bash zsh fish; do
  go run ./cmd/tempool completion "$shell" >"$dist/completions/tempool.$shell"
done

for target in ${TARGETS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}; do
  os=${target%/*} arch=${target#*/}
  name=tempool_${version}_${os}_${arch}
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X $info.commit=$commit -X $info.date=$date" -o "$dist/tempool" ./cmd/tempool
  size=$(wc -c <"$dist/tempool")
  echo "packages: $name: the program has $((size / 1024)) KiB"
  if [ "$size" -gt "$most" ]; then
    echo "packages: that is more than $((most / 1024)) KiB" >&2
    exit 1
  fi
  GOFLAGS= go run "$sbom" bin -json -noserial -notimestamp -version "v$version" -output "$dist/$name.sbom.json" "$dist/tempool"
  mkdir "$dist/$name"
  cp -r "$dist/tempool" "$dist/completions" "$dist/man" LICENSE README.md "$dist/$name/"
  tar -C "$dist" --sort=name --owner=0 --group=0 --mtime="$date" -czf "$dist/$name.tar.gz" "$name"
  rm -r "${dist:?}/$name"
  if [ "$os" = linux ]; then
    for kind in deb rpm; do
      ARCH=$arch VERSION=$version DIST=$dist GOFLAGS= go run "$nfpm" package -f deploy/package/nfpm.yaml -p "$kind" \
        -t "$dist/$name.$kind"
    done
  fi
  rm "$dist/tempool"
done
rm -r "$dist/man" "$dist/completions"
(cd "$dist" && sha256sum -- * >checksums.txt)
ls -l "$dist"
