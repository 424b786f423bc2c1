#!/usr/bin/env bash
# Tests the chart's rules with promtool, and checks that each alert has a test and a runbook, and that the metrics exist that rules and
# dashboards name.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=charts/machine-controller-fleet
rules=("$chart"/rules/*.yaml)
tests=("$chart"/ci/alerts/*_test.yaml)
runbooks=docs/runbooks
failed=0
fail() { echo "$1" >&2 && failed=1; }

hack/build-prometheus.sh
bin/promtool check rules --lint=all --lint-fatal "${rules[@]}" >/dev/null || failed=1
bin/promtool test rules "${tests[@]}" >/dev/null || failed=1

alerts=$(sed -n 's/^ *- alert: //p' "${rules[@]}" | sort -u)
for alert in $alerts; do
  grep -qE "alertname: $alert\}$" "${tests[@]}" || fail "${tests[*]}: expected a time at which $alert is silent, found none"
  grep -hA1 "^    alertname: $alert$" "${tests[@]}" | grep -q 'exp_alerts:' || fail "${tests[*]}: expected a time at which $alert fires, found none"
  for section in Meaning Check Fix; do
    grep -qx "## $section" "$runbooks/$alert.md" || fail "$runbooks/$alert.md: expected the section $section, found none"
  done
done

url=https://github.com/machine-controller-fleet/machine-controller-fleet/blob/main/$runbooks
wrong=$(awk -v url="$url" '/^ *- alert: / {alert = $3} /runbook_url: / && $2 != url "/" alert ".md" {print alert ": " $2}' "${rules[@]}")
[[ -z $wrong ]] || fail "expected $url/<alert>.md as runbook_url of each alert, got
$wrong"
for page in "$runbooks"/Machine*.md; do
  grep -qxF "$(basename "$page" .md)" <<<"$alerts" || fail "$page: expected an alert of this name, found none; remove the page"
done

# What the fleet exports, and what rules record.
sources=$(git ls-files '*.go' ':!e2e' ':!hack')
for metric in $(grep -ohP '(?<![\w:])(mcf|mcm)_[a-z_]+' "${rules[@]}" "$chart"/dashboards/*.json | sed -E 's/_(bucket|count|sum)$//' | sort -u); do
  # shellcheck disable=SC2086 # a list of files
  grep -qwF "$metric" $sources || fail "$chart: expected metrics that the fleet has in rules and dashboards, got $metric"
done
for recorded in $(grep -ohE '\bjob:[a-z_]+:[a-z0-9_]+' "${rules[@]}" "$chart"/dashboards/*.json | sort -u); do
  grep -qE "^ *- record: $recorded$" "${rules[@]}" || fail "$chart: expected series that a rule records, got $recorded"
done
exit $failed
