#!/bin/sh
# After the removal of a package. Configuration and state stay; deb's purge removes them, and the user.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = purge ]; then
  rm -rf /var/lib/tempool /etc/tempool
  if getent passwd tempool >/dev/null; then userdel tempool; fi
fi
