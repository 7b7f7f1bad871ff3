#!/bin/sh
# After the installation or upgrade of a package: deb calls it with "configure", rpm with the number of installed versions.
set -e
if ! getent group tempool >/dev/null; then groupadd --system tempool; fi
if ! getent passwd tempool >/dev/null; then
  useradd --system --gid tempool --home-dir /var/lib/tempool --no-create-home --shell /usr/sbin/nologin tempool
fi
for path in /etc/tempool /etc/tempool/agent.toml; do # other files are the operator's; rpm gives these to root at each upgrade
  if [ -e "$path" ]; then chgrp tempool "$path"; fi
done
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart tempool.service || true # which keeps the processes of an agent with keep_processes
fi
