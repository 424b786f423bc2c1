#!/usr/bin/env bash
# Runs tests, all parts also after a failure, and reports at the end what failed and the command that repeats it.
# usage: hack/test.sh [unit|e2e|image|alerts-short|alerts|helm-short|helm|chaos-short|chaos ...]; without parts those of make test
# Parts that are joined by a plus sign, alerts-short+helm-short, run at the same time.
#
# SEED makes a fault run repeatable; it is the day (UTC) when it is not given, and it is always printed.
# SHUFFLE is a seed for the order of unit tests. Without it results of packages that have not changed come from Go's cache.
# RESULTS is a file to which the results are appended, for hack/again.sh: "part <name> ok|FAILED <seconds>" and "test <name>".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

(($#)) || set -- unit e2e+image alerts-short+helm-short chaos-short
SEED=${SEED:-$(date -u +%Y%m%d)}
SHUFFLE=${SHUFFLE:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "hack/test.sh: interrupted" >&2; interrupt_others; exit 130' INT
failures=$work/failures names=$work/names # of the part that runs, and of all
: >"$failures" >"$names"

# beside runs a command at the same time as those that follow; wait waits for it. It has a process group of its own, because without one
# it would not be interrupted.
others=()
beside() {
  set -m
  "$@" &
  others+=($!)
  set +m
}
interrupt_others() {
  local group
  for group in "${others[@]}"; do kill -INT -- "-$group" 2>/dev/null; done
  wait
}

# fails records what failed, and the command that repeats it.
fails() { # command, name of a test or a package ...
  local command=$1
  shift
  printf '%s\n' "$@" >>"$names"
  { printf '  %s\n' "$@"; printf '      %s\n' "$command"; } >>"$failures"
}

# step runs a command that tests need.
step() { "$@" || { fails "$*" "$*"; return 1; }; }

# build is step for a command that builds programs into bin/, one at a time: parts that run at the same time need the same ones.
build() {
  local lock status
  exec {lock}>"$work/build.lock"
  flock "$lock"
  step "$@"
  status=$?
  exec {lock}>&-
  return "$status"
}

# tests runs go test in the folder of a module, and prints nothing of packages without tests. An interrupt ends go test,
# which waits for its tests to stop their labs; the reader of its output continues until then.
tests() { # folder, arguments of go test without packages, --, packages
  local folder=$1 log arguments=()
  shift
  log=$(mktemp -p "$work")
  while [[ $1 != -- ]]; do arguments+=("$1"); shift; done
  shift
  if (($# == 0)); then fails "go -C $folder list ./..." "no packages to test in $folder"; return; fi
  # make lint runs vet on all tests. Here it would analyze all of Kubernetes once more, which takes minutes without a cache.
  go -C "$folder" test -vet=off "${arguments[@]}" "$@" 2>&1 |
    (trap '' INT; exec awk -v log_file="$log" '{print >log_file} !/\[no test files\]$/ {print; fflush()}')
  ((PIPESTATUS[0] == 0)) || repeat_failed "$folder" "$log" "${arguments[@]}"
  rm -f "$log" "$log.failed"
}

# repeat_failed reads from the output of go test what failed. A test is repeated whole: its subtests may build on each other.
repeat_failed() { # folder, log, arguments of go test
  local folder=$1 log=$2 module package tests leaves leaf where which command='go test' seed run
  shift 2
  module=$(go -C "$folder" list -m)
  [[ $folder == . ]] || command="go -C $folder test"
  awk -v module="$module" '
    /^ *--- FAIL: / {failed[++n] = $3}
    /^\t\t(Test|Fuzz|Example)[^ ]* \(/ {failed[++n] = $1} # they ran at the timeout
    /^ok  \t/ {n = 0}
    /^FAIL\t/ {
      package = $2; sub("^" module, ".", package)
      tests = leaves = ""; split("", seen)
      for (i = 1; i <= n; i++) {
        leaf = 1
        for (j = 1; j <= n; j++) if (index(failed[j], failed[i] "/") == 1) leaf = 0
        if (leaf) leaves = leaves " " failed[i]
        split(failed[i], parts, "/")
        if (!(parts[1] in seen)) {seen[parts[1]] = 1; tests = tests (tests ? "|" : "") parts[1]}
      }
      print package "\t" (n ? tests : "-") "\t" (n ? leaves : "-")
      n = 0
    }' "$log" >"$log.failed"
  [[ -s $log.failed ]] || fails "$command $*" "go test in $folder"
  while IFS=$'\t' read -r package tests leaves; do
    which=() seed='' run=''
    where=$folder/${package#./}
    where=./${where#./}
    if [[ $tests == - ]]; then # it was not built, or its process ended outside of a test
      which=("$where")
    else
      run="-run '^($tests)\$' "
      for leaf in $leaves; do which+=("$where $leaf"); done
    fi
    [[ $package != */chaos ]] || seed="SEED=$SEED "
    fails "$seed$command $* $run$package" "${which[@]}"
  done <"$log.failed"
}

unit() {
  # The race detector makes packages that explore many worlds take minutes, and finds nothing more in them: they are run in
  # their short form with it, and in full without. Those of them that cannot import client-go are pure, have no concurrency,
  # and are run once.
  local order=() explore decide every own kubernetes
  [[ -z $SHUFFLE ]] || { order=("-shuffle=$SHUFFLE"); echo "unit: SHUFFLE=$SHUFFLE"; }
  explore=$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
    awk '$1 ~ /\/shard\/model$/ || / [^ ]*\/internal\/testkit\/worlds( |$)/ || / pgregory.net\/rapid( |$)/ {print $1}')
  # shellcheck disable=SC2086 # words are packages
  decide=$(go list -f '{{.ImportPath}} {{join .Deps " "}}' $explore | awk '!/ k8s\.io\/client-go\// {print $1}')
  mapfile -t every < <(go list ./... | grep -vxF "$decide")
  tests . -race -short "${order[@]}" -- "${every[@]}"
  # shellcheck disable=SC2086
  tests . "${order[@]}" -- $explore
  # Packages that link Kubernetes, or its library for API servers, are tested without the race detector, which would need all of it to be
  # compiled once more.
  go -C lab list -f '{{.ImportPath}} {{join .Deps " "}}' ./... >"$work/lab"
  mapfile -t own < <(awk '!/ k8s\.io\/(kubernetes|apiserver)\// {print $1}' "$work/lab")
  mapfile -t kubernetes < <(awk '/ k8s\.io\/(kubernetes|apiserver)\// {print $1}' "$work/lab")
  tests lab -race "${order[@]}" -- "${own[@]}"
  tests lab "${order[@]}" -- "${kubernetes[@]}"
  tests e2e/autoscaler "${order[@]}" -- ./... # it is pure
  tests tools/image "${order[@]}" -- ./...
  tests bridge "${order[@]}" -- ./...
  build_bridge
  tests driver/aws "${order[@]}" -- ./... # the SDK is large, as above
  tests driver/azure "${order[@]}" -- ./... # the SDK is large, as above
}

# build_bridge builds the bridge to MCM's driver of Azure for the tests of driver/azure, which is another module: without the sum, which they
# read, Go's cache would have results of another program.
build_bridge() {
  mkdir -p bin
  build go -C bridge/azure build -o ../../bin/azure-bridge .
  export BRIDGED_PROGRAM=$PWD/bin/azure-bridge BRIDGED_SUM
  BRIDGED_SUM=$(sha256sum "$BRIDGED_PROGRAM")
}

# The lab itself, and the fleet in it. The tests start and stop labs of their own.
e2e() {
  local packages
  build make build || return
  build make build-azure
  build hack/build-helm.sh
  build hack/build-jaeger.sh
  build hack/build-prometheus.sh # promtool checks the metrics of replicas
  build go -C e2e/autoscaler build -o ../../bin/ .
  build_bridge
  # Each process of a control plane watches its certificates by inotify, of which Linux gives a user 128 instances.
  local instances=/proc/sys/fs/inotify/max_user_instances
  if [[ -w $instances && $(<"$instances") -lt 1024 ]]; then echo 1024 >"$instances"; fi
  # The attacks take all the processor time that they get. They begin before ./e2e, whose tests have deadlines, and have mostly ended when
  # its labs have started.
  beside tests driver/azure -tags e2e -count=1 -timeout 10m -run InTheLab -- ./bridged
  beside tests . -tags e2e -count=1 -timeout 20m -- ./e2e/attack
  tests lab -tags e2e -count=1 -timeout 10m -parallel 4 -- ./smoke
  # They mostly wait: for VMs, drains, and periods in which nothing may change.
  tests . -tags e2e -count=1 -timeout 20m -- ./e2e
  mapfile -t packages < <(go list -tags e2e ./e2e/... | grep -vE '/e2e(|/(attack|chaos|helm|image|monitoring|scale))$')
  tests . -tags e2e -- "${packages[@]}" # they start no labs
  wait
}

# The container image and its binary. Its compiler and linker have a low priority, for the tests that run at the same time.
image() {
  build make build || return
  step nice -n 19 make image VERSION=v0.0.0-test || return
  beside tests tools/image -tags e2e -count=1 -run OfTheFleet -- ./...
  tests . -tags e2e -count=1 -timeout 5m -- ./e2e/image
  wait
}

# The chart's dashboards and alerts, with a real Prometheus. Alerts are about times: what runs beside them must need little CPU.
alerts() {
  build make build || return
  build hack/build-helm.sh
  build hack/build-prometheus.sh
  tests . -tags e2e -count=1 -timeout 40m -parallel 16 -v "$@" -- ./e2e/monitoring
}

alerts-short() { alerts -timeout 8m -short; }

# The fleet as the chart installs it. Without root the lab cannot run its pods, and the tests are skipped.
helm() {
  build make build || return
  build hack/build-helm.sh
  tests . -tags e2e -count=1 -timeout 30m -v "$@" -- ./e2e/helm
}

helm-short() { helm -timeout 8m -short; }

# faults runs the faults and is stopped at the limit. A little before that the tests end by themselves, and stop their labs.
# Each has a lab of its own and mostly waits, so that many run concurrently.
faults() {
  local limit=$1
  shift
  build make build || return
  build make build-azure
  echo "chaos: SEED=$SEED, at most $limit"
  export SEED
  tests . -tags e2e -count=1 -timeout "$limit" -v "$@" -- ./e2e/chaos
}

chaos() { faults 85m -parallel 2; }

chaos-short() { faults 5m -parallel 6 -short; }

for part in ${*//+/ }; do
  [[ $part =~ ^(unit|e2e|image|alerts-short|alerts|helm-short|helm|chaos-short|chaos)$ ]] ||
    { echo "hack/test.sh: expected unit, e2e, image, alerts-short, alerts, helm-short, helm, chaos-short or chaos, got '$part'" >&2; exit 2; }
done

# run runs one part, and writes to a file how long it took when it ends.
run() {
  local start=$SECONDS
  failures=$work/$1.failures
  : >"$failures"
  echo "== $1"
  "$1"
  echo $((SECONDS - start)) >"$work/$1.seconds"
}

# result reports a part that has run.
result() {
  local result=ok seconds=0
  failures=$work/$1.failures
  if [[ -e $work/$1.seconds ]]; then seconds=$(<"$work/$1.seconds"); else fails "hack/test.sh $1" "$1, which was killed"; fi
  if [[ -s $failures ]]; then
    result=FAILED failed+=("$1")
    cat "$failures" >>"$work/failures"
  fi
  rm -f "$work/$1."*
  times+=("$(printf '%-12s %-6s %4d s' "$1" "$result" "$seconds")")
  [[ -z ${RESULTS:-} ]] || echo "part $1 $result $seconds" >>"$RESULTS"
}

times=() failed=()
for group in "$@"; do
  IFS=+ read -ra together <<<"$group"
  for part in "${together[@]:1}"; do beside run "$part"; done
  run "${together[0]}"
  wait
  for part in "${together[@]}"; do result "$part"; done
done
[[ -z ${RESULTS:-} ]] || sed 's/^/test /' "$names" >>"$RESULTS"

printf '%s\n' "== result" "${times[@]}"
if ((${#failed[@]})); then
  { echo "== failed, and how to repeat it"; cat "$work/failures"; echo "or all of the failed parts: hack/test.sh ${failed[*]}"; } >&2
  exit 1
fi
