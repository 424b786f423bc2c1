#!/usr/bin/env bash
# Runs the tests that take hours: the model to its nightly depth, the simulation, the whole fleet and the sweeps of orphans with
# many seeds, hours of a landscape's life, properties in many more worlds, each alert by a fault, kubectl mcf and the page on a lab
# in which everything happens at once, the faults in their long form; the race detector, unit tests in their long form and in
# another order. All parts run, also after a failure, and any failure makes this fail.
#
# MODEL_TIME bounds each of the model's large scenarios, SEEDS is how many worlds the simulation explores, FLEET_SEEDS
# how many seeds the whole fleet, SWEEP_SEEDS how many worlds the sweeps of orphans. SEED is the day (UTC) when it is not
# given: each night has other worlds.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

export MODEL_TIME=${MODEL_TIME:-30m} SEED=${SEED:-$(date -u +%Y%m%d)}
SEEDS=${SEEDS:-500000} FLEET_SEEDS=${FLEET_SEEDS:-3000} SWEEP_SEEDS=${SWEEP_SEEDS:-15000}
echo "nightly: SEED=$SEED SEEDS=$SEEDS FLEET_SEEDS=$FLEET_SEEDS SWEEP_SEEDS=$SWEEP_SEEDS MODEL_TIME=$MODEL_TIME"

# More seeds than this in one night would be those of the next.
most=1000000
for seeds in SEEDS FLEET_SEEDS SWEEP_SEEDS; do
  ((${!seeds} <= most)) || { echo "hack/nightly.sh: expected at most $most $seeds, got ${!seeds}" >&2; exit 2; }
done

model() { make model; }
simulation() {
  go test -count=1 -timeout 6h -run '^(TestFaults|TestOutages|TestHandWrittenHolders)$' ./shard/verification/simulation \
    -seeds="$SEEDS" -first="$((SEED * most))"
}
fleet() {
  go test -count=1 -timeout 3h -run '^TestWholeFleet$' ./internal/replica -seeds="$FLEET_SEEDS" -first="$((SEED * most))"
}
sweeps() {
  go test -count=1 -timeout 3h -run '^TestSweeps$' ./controllers/orphans -seeds="$SWEEP_SEEDS" -first="$((SEED * most))"
}
properties() {
  local drawn
  mapfile -t drawn < <(go list -f '{{.ImportPath}} {{join .TestImports " "}}' ./... | awk '/ pgregory.net\/rapid( |$)/ {print $1}')
  RAPID_SEED=$SEED RAPID_CHECKS=${RAPID_CHECKS:-10000} go test -count=1 -timeout 3h "${drawn[@]}"
}
hours() { go test -count=1 -timeout 1h -run '^TestHours$' ./internal/replica -hours=6 -v; }
orders() { SHUFFLE=$SEED hack/test.sh unit race long modules; }
alerts() { hack/test.sh alerts; }
everything() { make everything-e2e; }
faults() { hack/test.sh chaos; }

results=() status=0
for part in orders model simulation fleet hours sweeps properties alerts everything faults; do
  echo "== nightly: $part"
  start=$SECONDS result=passed
  "$part" || { result=FAILED status=1; }
  results+=("$(printf '%-12s %-6s %6d s' "$part" "$result" $((SECONDS - start)))")
done
printf '%s\n' "== nightly: SEED=$SEED" "${results[@]}"
exit "$status"
