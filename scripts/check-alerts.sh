#!/usr/bin/env bash
# Checks the configuration of Prometheus and the alert rules, and runs the tests of the alerts in deploy/prometheus/alerts_test.yml.
set -euo pipefail
cd "$(dirname "$0")/../deploy/prometheus"

if ! command -v promtool >/dev/null; then
  echo "promtool is missing; scripts/setup-debian.sh installs it on Debian" >&2
  exit 1
fi
promtool check config prometheus.yml
promtool test rules alerts_test.yml
