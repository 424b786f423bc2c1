#!/usr/bin/env bash
# Tests the chart's alerts with promtool, and checks that the metrics and pages exist that alerts and dashboards name.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=charts/machine-controller-fleet
alerts=$chart/rules/alerts.yaml
tests=$chart/ci/alerts/alerts_test.yaml
failed=0
fail() { echo "$1" >&2 && failed=1; }

# The tags leave out the discovery of services, with the libraries of all clouds.
mkdir -p bin
(cd tools/promtool && go build -trimpath -buildvcs=false -tags remove_all_sd -o ../../bin/promtool github.com/prometheus/prometheus/cmd/promtool)
bin/promtool check rules --lint=all --lint-fatal "$alerts" >/dev/null || failed=1
bin/promtool test rules "$tests" >/dev/null || failed=1

for alert in $(sed -n 's/^ *- alert: //p' "$alerts"); do
  grep -q "^    alertname: $alert$" "$tests" || fail "$tests: expected a test in which $alert fires, found none"
done

sources=$(git ls-files '*.go' ':!e2e' ':!lab')
for metric in $(grep -ohE '\b(mcf|mcm)_[a-z_]+' "$alerts" "$chart"/dashboards/*.json | sort -u); do
  # shellcheck disable=SC2086 # a list of files
  grep -qwF "${metric%_bucket}" $sources || fail "$chart: expected metrics that the fleet has in alerts and dashboards, got $metric"
done

# An anchor is a heading in lower case, without punctuation, with dashes for spaces.
docs=https://github.com/machine-controller-fleet/machine-controller-fleet/blob/main/docs/
for page in $(sed -n 's/^ *runbook_url: //p' "$alerts" | sort -u); do
  file=docs/${page#"$docs"}
  headings=$(sed -n 's/^##* //p' "${file%#*}" | tr '[:upper:]' '[:lower:]' | tr -d "'\`,.:()?" | tr ' ' -)
  grep -qxF -- "${page#*#}" <<<"$headings" || fail "$alerts: expected runbook URLs of headings in docs/, got $page"
done
exit $failed
