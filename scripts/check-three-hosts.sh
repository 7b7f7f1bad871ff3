#!/usr/bin/env bash
# Runs the commands of docs/operations/three-hosts.md with the packages that scripts/packages.sh has made in dist/, as root, on
# three hosts: network namespaces with a Debian and a systemd each, beside a fourth with a Temporal server. With SCREENSHOT=FILE it keeps a
# picture of the dashboard there.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/operations/three-hosts.md
version=$(cat internal/buildinfo/VERSION)
hosts=(web-1 web-2 web-3)
work=$(mktemp -d)
base=$work/base
id=tp$$ # of the namespaces and groups
groups=$(findmnt -n -o TARGET -t cgroup2 | head -1)
step() { echo "check-three-hosts: $*"; }
fail() {
  step "$*" >&2
  exit 1
}
finish() {
  status=$?
  for host in "${hosts[@]}" temporal; do
if [ "$status" != 0 ] && [ "$host" != temporal ]; then on "$host" journalctl -u tempool -n 100 --no-pager -o cat | grep -v INFO >&2 || true; fi
    ip netns pids "$id-$host" 2>/dev/null | xargs -r kill -KILL || true
    ip netns del "$id-$host" 2>/dev/null || true
  done
  ip link del "$id" 2>/dev/null || true
  for _ in $(seq 20); do
    find "$groups" -depth -type d -path "$groups/$id-*" -exec rmdir {} + 2>/dev/null || true
    compgen -G "$groups/$id-*" >/dev/null || break
    sleep 0.5
  done
  [ "$status" = 0 ] || tail -n 5 "$work"/*.log >&2 || true
  umount -l "$base/proc" "$base/sys" 2>/dev/null || true
  for host in "${hosts[@]}"; do umount -l "$work/$host" 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT

step "making a root file system"
debootstrap --variant=minbase --include=systemd,openssh-server,openssh-client,openssl,ca-certificates,curl,python3-venv,prometheus bookworm \
  "$base" >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; exit 1; }
for service in prometheus prometheus-node-exporter ssh; do rm -f "$base/etc/systemd/system/multi-user.target.wants/$service.service"; done
systemctl --root="$base" --quiet enable ssh.service
mkdir -p -m 700 "$base/root/.ssh"
ssh-keygen -q -t ed25519 -N '' -f "$base/root/.ssh/id_ed25519"
cp "$base/root/.ssh/id_ed25519.pub" "$base/root/.ssh/authorized_keys"
echo "StrictHostKeyChecking accept-new" >"$base/root/.ssh/config"
echo "127.0.0.1 localhost" >>"$base/etc/hosts"
for n in 1 2 3; do echo "10.99.0.$n web-$n"; done >>"$base/etc/hosts"
echo "10.99.0.4 temporal" >>"$base/etc/hosts"

cp "dist/tempool_${version}_linux_amd64.deb" "$base/root/"
dpkg-deb -R "dist/tempool_${version}_linux_amd64.deb" "$work/next"
grep -q "tempool_${version}_linux" "$page" && grep -q "tempool-$version-py3" "$page" || fail "$page must install version $version"
next=$(grep -oP 'tempool_\K[0-9.]+(?=_linux_amd64.deb)' "$page" | sort -V | tail -1)
sed -i "s/^Version:.*/Version: $next/" "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group -b "$work/next" "$base/root/tempool_${next}_linux_amd64.deb" >/dev/null
cp -r sdk/python "$work/python"
/usr/bin/python3 -m build --wheel --no-isolation --outdir "$base/root" "$work/python" >"$work/wheel.log" 2>&1 ||
  { cat "$work/wheel.log" >&2; exit 1; }

step "starting three hosts"
ip link add "$id" type bridge
ip link set "$id" up
n=0
for host in "${hosts[@]}" temporal; do
  n=$((n + 1))
  ip netns add "$id-$host"
  ip link add "$id$n" type veth peer name eth0 netns "$id-$host"
  ip link set "$id$n" master "$id" up
  ip -n "$id-$host" addr add "10.99.0.$n/24" dev eth0
  ip -n "$id-$host" link set eth0 up
  ip -n "$id-$host" link set lo up
done
ip netns exec "$id-temporal" "$(go run ./internal/devserver/provide)" server start-dev --ip 0.0.0.0 --headless >"$work/temporal.log" 2>&1 &
disown

# start makes systemd process 1 of a host.
start() {
  local root=$work/$1
  mkdir -p "$root" "$work/$1.changes" "$work/$1.work" "$groups/$id-$1"
  mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/$1.changes,workdir=$work/$1.work" "$root"
  echo "$1" >"$root/etc/hostname"
  (
    echo "$BASHPID" >"$groups/$id-$1/cgroup.procs"
    exec ip netns exec "$id-$1" unshare --mount --uts --ipc --pid --cgroup --fork sh -c "
      mount --make-rprivate / && hostname $1 && cd $root
      mount -t proc proc proc && mount --bind proc/sys proc/sys && mount -o remount,ro,bind proc/sys # of the whole kernel
      mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
      mount -t tmpfs tmpfs run && mount -t tmpfs tmpfs tmp && mount -t tmpfs -o mode=755 tmpfs dev
      for node in null zero full random urandom tty; do touch dev/\$node && mount --bind /dev/\$node dev/\$node; done
      mkdir dev/pts dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
      pivot_root . mnt # a service in a chroot could have no user namespace
      exec chroot . sh -c 'umount -l /mnt && exec env -i container=tempool /lib/systemd/systemd --unit=multi-user.target'" >"$work/$1.log" 2>&1
  ) &
  disown
}
# on runs a command on a host, as root.
on() {
  local host=$1
  shift
  nsenter -t "$(ip netns pids "$id-$host" | xargs -I{} grep -lz '^/lib/systemd/systemd$' /proc/{}/cmdline 2>/dev/null | head -1 | cut -d/ -f3)" \
    --mount --uts --ipc --net --pid --cgroup --root env -i -C /root HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
# await repeats a command until it succeeds.
await() {
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  "$@" || fail "in vain: $*"
}
for host in "${hosts[@]}"; do start "$host"; done
for host in "${hosts[@]}"; do for unit in multi-user.target ssh.service; do await on "$host" systemctl is-active "$unit"; done; done

# section runs the commands below a heading, block by block; check, if there is one, after each block.
section() {
  step "$1"
  local count=0 who where
  while IFS= read -r -d '' block; do
    who=$(head -1 <<<"$block")
    count=$((count + 1))
    for where in $([ "$who" = every-host ] && echo "${hosts[@]}" || echo "$who"); do
      on "$where" bash -euo pipefail -c "$(tail -n +2 <<<"$block")" >"$work/out" 2>&1 </dev/null ||
        { cat "$work/out" >&2; fail "a command of block $count fails on $where"; }
      if [ "${2-}" != "" ]; then "$2" "$count" "$where"; fi
    done
  done < <(awk -v heading="## $1" '
    /^## /              { inside = $0 == heading }
    inside && /^```sh / { block = 1; print $2; next }
    block && /^```/     { block = 0; printf "%c", 0 }
    block               { print }' "$page")
  [ "$count" -gt 0 ] || fail "$page has no section $1 with commands"
  done+="## $1"$'\n'
}
done=

processes() { on web-1 tempool ps hello -o json --address temporal:7233 | jq -c '[.. | objects | select(has("pid")) | [.worker, .host, .pid]] | sort'; }
three_answers() { [ "$1" != 3 ] || [ "$(grep -o 'from web-' "$work/out" | wc -l)" = 3 ] || fail "$(cat "$work/out")"; }
alert() {
  if [ "$1" = 1 ]; then # the rule's minute is five seconds here
    on web-1 sed -i '/TempoolAgentDown/,/for:/s/for: 1m/for: 5s/' /usr/share/tempool/alerts.yml
    on web-1 systemctl restart prometheus
    await on web-1 curl -sS --fail http://localhost:9090/-/ready
  fi
  if [ "$1" = 3 ]; then await firing; fi
  if [ "$1" = 4 ]; then await quiet; fi
}
firing() { on web-1 promtool query instant http://localhost:9090 'ALERTS{alertstate="firing"}' | grep -q 'TempoolAgentDown.*web-3:7460'; }
quiet() {
  local out
  out=$(on web-1 promtool query instant http://localhost:9090 'ALERTS{alertstate="firing", alertname="TempoolAgentDown"}') && [ -z "$out" ]
}
# picture keeps a screenshot of the dashboard in the file SCREENSHOT, if that is set. A Chromium on web-1 signs in with a token, and accepts the
# certificate of web-1 only.
picture() {
  [ -n "${SCREENSHOT-}" ] || return 0
  local key link
  key=$(on web-1 openssl x509 -in /etc/tempool/gateway.pem -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64)
  link=$(on web-1 tempool ui --print --gateway https://web-1:7460 --token-file secrets/app.token)
  ip netns exec "$id-web-1" chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/chromium" --window-size=1400,900 \
    --host-resolver-rules="MAP web-1 10.99.0.1" --ignore-certificate-errors-spki-list="$key" --timeout=5000 \
    --screenshot="$(realpath "$SCREENSHOT")" "$link" >"$work/chromium.log" 2>&1
}
upgraded() { await on "$2" systemctl is-active tempool; }

section Install
section "Certificates and secrets"
section Start three_answers
before=$(processes)
[ "$(jq length <<<"$before")" = 6 ] || fail "not six processes: $before"
picture
section Monitor alert
section Upgrade upgraded
await eval '[ "$(processes)" = "$before" ]'
section "Back up"
section "Take a host away"
on web-3 test ! -e /etc/tempool -a ! -e /var/lib/tempool -a ! -e /usr/bin/tempool || fail "the package leaves files behind"
[ "$done" = "$(grep '^## ' "$page")"$'\n' ] || fail "$page has sections that nothing runs"
step "passed"
