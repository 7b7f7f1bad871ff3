#!/usr/bin/env bash
# Checks the packages of linux/amd64 that scripts/packages.sh has made in dist/, as root. The archive is unpacked in a root
# file system with Debian's base and Python 3 alone, where tempool dev --once must finish its job on a Temporal server that it
# starts from the program that this user has in cache. There, too, rpm and deb are installed, upgraded and removed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cat internal/buildinfo/VERSION)
archive=dist/tempool_${version}_linux_amd64.tar.gz
root=$(mktemp -d)
chmod 755 "$root" # for the user of the package
finish() {
  umount -l "$root/proc" "$root/dev" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap finish EXIT
in_root() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp LANG=C.UTF-8 "$@"; }
step() { echo "check-packages: $*"; }
# kept_settings checks that an upgrade keeps the settings, and the groups of files of the operator.
kept_settings() {
  in_root grep -q '# mine' /etc/tempool/agent.toml
  [ "$(in_root stat -c %G /etc/tempool /etc/tempool/agent.toml /etc/tempool/mine | xargs)" = "tempool tempool root" ]
}

(cd dist && sha256sum -c --quiet checksums.txt)
step "making a root file system"
debootstrap --variant=minbase --include=python3,rpm bookworm "$root" >"$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
rm "$root.log"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
in_root sh -c 'find / -xdev -path /proc -prune -o -path /var/log -prune -o -print | sort' >"$root/tmp/before"

step "the archive: tempool dev --once"
mkdir "$root/opt/tempool"
tar -C "$root/opt/tempool" --strip-components=1 -xzf "$archive"
install -m 755 "$(go run ./internal/devserver/provide)" "$root/usr/local/bin/temporal"
in_root /opt/tempool/tempool --version
in_root /opt/tempool/tempool dev --once >"$root/tmp/once" 2>&1 || { tail -20 "$root/tmp/once" >&2; exit 1; }
grep -E 'is ready|files a second' "$root/tmp/once"
rm -rf "$root/opt/tempool" "$root/tmp/.cache"

jq -e '[.components[].name] | contains(["go.temporal.io/sdk", "github.com/spf13/cobra"])' "${archive%.tar.gz}.sbom.json" >/dev/null

step "the rpm: install, upgrade, removal" # by Debian's rpm, which knows nothing of the root's other packages
cp "dist/tempool_${version}_linux_amd64.rpm" "$root/tmp/new.rpm"
in_root rpm -i --nodeps /tmp/new.rpm
in_root install -d -o tempool -m 700 /var/lib/tempool
in_root su -s /bin/sh tempool -c '/usr/bin/tempool agent --config /etc/tempool/agent.toml --check'
echo '# mine' >>"$root/etc/tempool/agent.toml"
in_root touch /etc/tempool/mine
in_root rpm -U --nodeps --force /tmp/new.rpm
kept_settings
in_root rpm -e tempool
in_root test -e /etc/tempool/agent.toml.rpmsave -a -d /var/lib/tempool -a ! -e /usr/bin/tempool
in_root sh -ec 'rm -r /etc/tempool /var/lib/tempool /tmp/new.rpm; userdel tempool'

step "the deb: install"
cp "dist/tempool_${version}_linux_amd64.deb" "$root/tmp/new.deb"
in_root dpkg -i /tmp/new.deb >/dev/null
in_root sh -ec 'tempool --version | head -1; id tempool; ls -ld /etc/tempool/agent.toml; man=/usr/share/man/man1/tempool.1.gz; test -s $man'
in_root install -d -o tempool -m 700 /var/lib/tempool
unit=$root/usr/lib/systemd/system/tempool.service
command=$(sed -n 's/^ExecStart=//p' "$unit")
in_root su -s /bin/sh tempool -c "$command --check"

step "the deb: upgrade, removal, purge"
echo '# mine' >>"$root/etc/tempool/agent.toml"
dpkg-deb -R "$root/tmp/new.deb" "$root/tmp/next"
sed -i "s/^Version:.*/Version: $version+1/" "$root/tmp/next/DEBIAN/control"
dpkg-deb --root-owner-group -b "$root/tmp/next" "$root/tmp/next.deb" >/dev/null
in_root touch /etc/tempool/mine
in_root dpkg -i /tmp/next.deb >/dev/null
kept_settings
in_root su -s /bin/sh tempool -c 'sleep 600 >/dev/null 2>&1 &' # as if kept
in_root dpkg -r tempool >/dev/null
in_root test -e /etc/tempool/agent.toml -a -d /var/lib/tempool -a ! -e /usr/bin/tempool
ln -s /bin/false "$root/usr/local/bin/userdel" # in_root finds it first
if in_root dpkg -P tempool >/dev/null 2>&1 || in_root test -e /etc/tempool -o -e /var/lib/tempool; then exit 1; fi
rm "$root/usr/local/bin/userdel"
in_root dpkg -P tempool >/dev/null
rm -rf "$root"/tmp/{new.deb,next,next.deb,once} "$root/usr/local/bin/temporal"
in_root sh -c 'find / -xdev -path /proc -prune -o -path /var/log -prune -o -print | sort' >"$root/tmp/after"
left=$(comm -13 "$root/tmp/before" "$root/tmp/after" | grep -vE '^/(tmp|etc/.*-$|var/(lib/(dpkg|rpm)|cache)|opt)' || true)
if [ -n "$left" ]; then
  printf 'check-packages: left behind:\n%s\n' "$left" >&2
  exit 1
fi

step "the unit"
sed 's#^ExecStart=.*#ExecStart=/bin/true#' deploy/package/tempool.service >"$root/tmp/tempool.service"
systemd-analyze verify --man=no "$root/tmp/tempool.service"
systemd-analyze security --offline=yes "$root/tmp/tempool.service" 2>/dev/null | tail -1 || true
step "passed"
