#!/bin/sh
# Before the removal of a package, not before an upgrade: deb calls it with "remove", rpm with 0 versions that stay.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then systemctl disable --now tempool.service || true; fi
    ;;
esac
