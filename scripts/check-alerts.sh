#!/usr/bin/env bash
# Fails if Prometheus would find fault with its configuration or the alert rules, or if an alert does not do on made-up series what
# deploy/prometheus/alerts_test.yml says.
set -euo pipefail
cd "$(dirname "$0")/../deploy/prometheus"

if ! command -v promtool >/dev/null; then
  echo "promtool is missing; scripts/setup-debian.sh installs it on Debian" >&2
  exit 1
fi
promtool check config prometheus.yml
promtool test rules alerts_test.yml
