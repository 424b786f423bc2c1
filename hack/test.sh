#!/usr/bin/env bash
# Runs tests and tells how long each part took. usage: hack/test.sh unit|e2e|chaos-short|chaos ...
#
# SEED makes a fault run repeatable; it is the day (UTC) when it is not given, and it is always printed.
set -euo pipefail
cd "$(dirname "$0")/.."

SEED=${SEED:-$(date -u +%Y%m%d)}

# tests runs go test, and says nothing of packages without tests.
tests() { go test "$@" | { grep -v '\[no test files\]$' || true; }; }

unit() {
  # The race detector makes what explores many worlds take minutes, and finds nothing more in them: such packages are run in
  # their short form with it, and in full without. Those of them that cannot reach client-go only decide. Nothing in them
  # happens at the same time as anything else, and they are run once.
  local every explore decide
  every=$(go list ./...)
  explore=$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
    awk '$1 ~ /\/shard\/model$/ || / [^ ]*\/internal\/worlds( |$)/ || / pgregory.net\/rapid( |$)/ {print $1}')
  decide=$(go list -f '{{.ImportPath}} {{join .Deps " "}}' $explore | awk '!/ k8s\.io\/client-go\// {print $1}')
  tests -race -short -shuffle=on $(grep -vxF "$decide" <<<"$every")
  tests -shuffle=on $explore
  cd lab
  # What links Kubernetes is tested without the race detector, which would have all of Kubernetes compiled once more.
  local own kubernetes
  mapfile -t own < <(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '!/ k8s\.io\/kubernetes\// {print $1}')
  mapfile -t kubernetes < <(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '/ k8s\.io\/kubernetes\// {print $1}')
  tests -race -shuffle=on "${own[@]}"
  tests -shuffle=on "${kubernetes[@]}"
  cd ../e2e/autoscaler # it only decides
  tests -shuffle=on ./...
}

# The lab itself, and then the fleet in it. The tests start and stop labs of their own.
e2e() {
  local packages
  hack/build-helm.sh
  hack/build-jaeger.sh
  (cd e2e/autoscaler && go build -o ../../bin/ .)
  # Each process of a control plane watches its certificates by inotify, of which Linux gives a user 128 instances.
  local instances=/proc/sys/fs/inotify/max_user_instances
  if [[ -w $instances && $(<"$instances") -lt 1024 ]]; then echo 1024 >"$instances"; fi
  mapfile -t packages < <(go list -tags e2e ./e2e/... | grep -v '/e2e/chaos$')
  (cd lab && tests -tags e2e -count=1 -timeout 10m ./smoke)
  tests -tags e2e -count=1 -timeout 20m "${packages[@]}"
}

# faults runs the faults and gives up after so long. A little before that the tests give up by themselves, and stop their labs.
# Each has one of its own and mostly waits, so that many go on at a time.
faults() {
  local limit=$1
  shift
  echo "chaos: SEED=$SEED, at most $limit"
  SEED=$SEED go test -tags e2e -count=1 -timeout "$limit" -v "$@" ./e2e/chaos
}

chaos() { faults 40m -parallel 2; }

chaos-short() { faults 4m -parallel 4 -short; }

times=()
for part in "$@"; do
  [[ $part =~ ^(unit|e2e|chaos-short|chaos)$ ]] ||
    { echo "hack/test.sh: want unit, e2e, chaos-short or chaos, got '$part'" >&2; exit 2; }
  echo "== $part"
  start=$SECONDS
  trap 'echo "== $part failed after $((SECONDS - start)) s" >&2' ERR
  ("$part")
  times+=("$(printf '%-12s %4d s' "$part" $((SECONDS - start)))")
done
printf '%s\n' "== passed" "${times[@]}"
