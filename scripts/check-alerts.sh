#!/usr/bin/env bash
# Checks the configuration of Prometheus, Alertmanager and the alert rules, and runs the tests of the alerts in
# deploy/prometheus/alerts_test.yml.
set -euo pipefail
cd "$(dirname "$0")/../deploy/prometheus"

for tool in promtool amtool; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is missing; scripts/setup-debian.sh installs it on Debian" >&2
    exit 1
  fi
done
promtool check config prometheus.yml
promtool test rules alerts_test.yml
amtool check-config alertmanager.yml
for severity in critical warning info; do
  amtool config routes test --config.file=alertmanager.yml --verify.receivers=inbox severity="$severity" alertname=TempoolPoolDown pool=py
done
