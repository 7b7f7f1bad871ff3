#!/bin/sh
# After the removal of a package. Configuration and state stay; deb's purge removes them, and the user.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = purge ]; then
  if getent passwd tempool >/dev/null; then
    # Processes that the agent kept for the next one live for two more minutes; userdel fails while the user has any on this root.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      running=
      for status in $(grep -ls "^Uid:	$(id -u tempool)	" /proc/[0-9]*/status); do
        process=${status%/status}
        if [ "$process/root" -ef / ]; then
          running=yes
          kill -KILL "${process#/proc/}" || true
        fi
      done
      if [ -z "$running" ]; then break; fi
      sleep 0.5
    done
  fi
  rm -rf /var/lib/tempool /etc/tempool
  if getent passwd tempool >/dev/null; then userdel tempool; fi
fi
