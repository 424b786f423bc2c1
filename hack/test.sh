#!/usr/bin/env bash
# Runs tests, all parts also after a failure, and reports at the end what failed and the command that repeats it.
# usage: hack/test.sh [<part> ...]; test stands for the parts of make test and more for those that make test-all adds to them. Without
# parts it is test; race and long are parts of make nightly. Parts that are joined by a plus sign, alerts-short+helm-short, run at the same time.
#
# SEED makes a fault run repeatable; it is the day (UTC) when it is not given, and it is always printed.
# SHUFFLE is a seed for the order of unit tests. Without it results of packages that have not changed come from Go's cache.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. hack/env.sh

test=(unit e2e+chaos-short)
more=(modules+smoke e2e-rest+page chaos-more image+attack alerts-short+helm-short)
SEED=${SEED:-$(date -u +%Y%m%d)}
order=()
[[ -z ${SHUFFLE:-} ]] || order=("-shuffle=$SHUFFLE")

groups=() names=()
for word in "${@:-test}"; do
  case $word in
    test) groups+=("${test[@]}") ;;
    more) groups+=("${more[@]}") ;;
    *) groups+=("$word") ;;
  esac
done
IFS=+ read -ra names <<<"$(IFS=+; echo "${groups[*]}")"
for name in "${names[@]}"; do
  [[ $name =~ ^(unit|race|long|modules|e2e|e2e-rest|smoke|attack|page|image|alerts-short|alerts|helm-short|helm|chaos-short|chaos-more|chaos)$ ]] || {
    echo "hack/test.sh: expected test, more, unit, race, long, modules, e2e, e2e-rest, smoke, attack, page, image, alerts-short, alerts, helm-short," \
      "helm, chaos-short, chaos-more or chaos, got '$name'" >&2
    exit 2
  }
done

gotestsum=$PWD/bin/gotestsum
mkdir -p bin
go -C hack/tools/gotestsum build -ldflags '-s -w' -o "$gotestsum" gotest.tools/gotestsum || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "hack/test.sh: interrupted" >&2; interrupt_others; exit 130' INT

# concurrently runs a command at the same time as those that follow; wait waits for it. It has its own process group, because without one
# it would not be interrupted.
others=()
concurrently() {
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
  { printf '  %s\n' "$@"; printf '      %s\n' "$command"; } >>"$failures"
}

# build runs a command that builds programs into bin/, one at a time: parts that run at the same time need the same ones.
build() {
  local lock status
  exec {lock}>"$work/build.lock"
  flock "$lock"
  "$@" || fails "$*" "$*"
  status=$?
  exec {lock}>&-
  return "$status"
}

# tests runs go test in the folder of a module. An interrupt ends it when its tests have stopped their labs. The timeout is for what hangs.
# make lint runs vet on all tests: here it would analyze all of Kubernetes once more, which takes minutes without a cache.
tests() { # folder, arguments of go test without packages, --, packages, arguments of the test binary
  local folder=$1 log module command='go test' arguments=() format=pkgname-and-test-fails
  [[ $folder == . ]] || command="go -C $folder test"
  shift
  while [[ $1 != -- ]]; do
    case $1 in
      -v) format=standard-verbose ;;
      -race) local -x CGO_ENABLED=1 ;;
    esac
    arguments+=("$1")
    if [[ $1 =~ ^[[:alnum:]=./-]+$ ]]; then command+=" $1"; else command+=" '$1'"; fi
    shift
  done
  shift
  if (($# == 0)); then fails "go -C $folder list ./..." "no packages to test in $folder"; return; fi
  log=$(mktemp "$work/XXXXXX.json")
  (cd "$folder" && exec "$gotestsum" --format "$format" --format-hide-empty-pkg --hide-summary skipped,output --jsonfile "$log" -- \
    -vet=off -timeout 40m "${arguments[@]}" "$@") && return
  module=$(go -C "$folder" list -m)
  [[ $1 != */chaos ]] || command="SEED=$SEED $command"
  go run ./hack/failed -module "$module" -folder "$folder" -command "$command" <"$log" >>"$failures" || fails "$command $*" "go test in $folder"
}

# The packages of the root module whose tests need no lab.
without_lab() { go list -tags e2e ./... | grep -vE '/e2e(|/(attack|chaos|helm|image|monitoring|scale))$'; }

# lab builds what every lab needs. Each process of a control plane watches its certificates by inotify, of which Linux gives a user 128
# instances.
lab() {
  local instances=/proc/sys/fs/inotify/max_user_instances
  if [[ -w $instances && $(<"$instances") -lt 1024 ]]; then echo 1024 >"$instances"; fi
  build make build
}

# What a change needs: the short form, without the race detector, for which all that the code imports would be compiled once more.
unit() {
  local packages
  mapfile -t packages < <(without_lab)
  tests . -tags e2e -short "${order[@]}" -- "${packages[@]}"
  tests e2e/lab "${order[@]}" -- ./...
  tests cmd/kubectl-mcf "${order[@]}" -- ./...
}

# The race detector, for packages that synchronize goroutines. All that they import is compiled once more for it, so that the lab's packages
# that link Kubernetes are left out.
race() {
  local packages list='{{.ImportPath}} {{join .Imports " "}}|{{join .TestImports " "}} {{join .XTestImports " "}}|{{join .Deps " "}}'
  mapfile -t packages < <(go list -f "$list" ./... | awk -F'|' '$1 ~ / sync(\/atomic)?( |$)/ && $2 ~ /testing/ {split($1, path, " "); print path[1]}')
  tests . -race -short "${order[@]}" -- "${packages[@]}"
  mapfile -t packages < <(go -C e2e/lab list -f "$list" ./... |
    awk -F'|' '$1 ~ / sync(\/atomic)?( |$)/ && $2 ~ /testing/ && $3 !~ / k8s\.io\/(kubernetes|apiserver)\// {split($1, path, " "); print path[1]}')
  tests e2e/lab -race "${order[@]}" -- "${packages[@]}"
}

# The long form of the tests that have one: more worlds, seeds and faults.
long() {
  local packages
  mapfile -t packages < <(
    go list -f '{{range .TestGoFiles}}{{$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}} {{end}}' ./... |
      xargs grep -lE 'testing\.Short\(\)|worlds\.(Some|Check)\(' | xargs dirname | sort -u
  )
  tests . "${order[@]}" -- "${packages[@]}"
}

# The modules of clouds and of the bridge, and those that only tests and releases need. The SDKs are large.
modules() {
  tests e2e/autoscaler "${order[@]}" -- ./...
  tests hack/tools/image "${order[@]}" -- ./...
  tests driver/bridge "${order[@]}" -- ./...
  # The tests of driver/azure run the bridge to MCM's driver, which is another module: without the sum, which they read, Go's cache would
  # have results of another program.
  build go -C driver/bridge/azure build -o ../../../bin/azure-bridge .
  export BRIDGED_PROGRAM=$PWD/bin/azure-bridge BRIDGED_SUM
  BRIDGED_SUM=$(sha256sum "$BRIDGED_PROGRAM")
  tests driver/aws "${order[@]}" -- ./...
  tests driver/azure "${order[@]}" -- ./...
  lab && build make build-azure && tests driver/azure -tags e2e -count=1 -run InTheLab -- ./bridged
}

# The journeys of a user.
e2e() {
  lab || return
  build go -C e2e/autoscaler build -o ../../bin/ .
  tests . -tags e2e -count=1 -short -- ./e2e
}

# All but the journeys.
e2e-rest() {
  lab || return
  build make build-azure
  build hack/build-helm.sh
  build hack/build-jaeger.sh
  build hack/build-prometheus.sh # promtool checks the metrics of replicas
  build go -C e2e/autoscaler build -o ../../bin/ .
  tests . -tags e2e -count=1 -- ./e2e -rest
}

# The lab itself.
smoke() {
  lab || return
  tests e2e/lab -tags e2e -count=1 -parallel 4 -- ./smoke
}

attack() { lab && tests . -tags e2e -count=1 -- ./e2e/attack; }

# The page of the fleet in Chromium. Without Chromium and npm it fails.
page() { hack/page-e2e.sh || fails "make page-e2e" "make page-e2e"; }

# The container image and its binary. Its compiler and linker have a low priority, for the tests that run at the same time.
image() {
  lab || return
  build nice -n 19 make image VERSION=v0.0.0-test || return
  tests hack/tools/image -tags e2e -count=1 -run OfTheFleet -- ./...
  tests . -tags e2e -count=1 -- ./e2e/image
}

# The chart's dashboards and alerts, with a real Prometheus. Alerts are about times: what runs concurrently with them must need little CPU.
alerts() {
  lab || return
  build hack/build-helm.sh
  build hack/build-prometheus.sh
  tests . -tags e2e -count=1 -parallel 16 "${@:--v}" -- ./e2e/monitoring
}

alerts-short() { alerts -short; }

# The fleet as the chart installs it. Without root the lab cannot run its pods, and the tests are skipped.
helm() {
  lab || return
  build hack/build-helm.sh
  tests . -tags e2e -count=1 "${@:--v}" -- ./e2e/helm
}

helm-short() { helm -short; }

# Each test of faults has a separate lab and mostly waits, so that several run concurrently.
faults() {
  lab || return
  echo "faults: SEED=$SEED"
  export SEED
  tests . -tags e2e -count=1 "$@" -- ./e2e/chaos
}

# One lab: killed, paused and doubled replicas, cut links and edited Leases, one after the other.
chaos-short() { faults -short -run '^TestFaults$'; }

chaos-more() {
  build make build-azure
  faults -parallel 4 -short -skip '^TestFaults$'
}

chaos() {
  build make build-azure
  faults -timeout 100m -parallel 2 -v
}

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
  times+=("$(printf '%-12s %-6s %4d s' "$1" "$result" "$seconds")")
}

times=() failed=()
for group in "${groups[@]}"; do
  IFS=+ read -ra together <<<"$group"
  for part in "${together[@]:1}"; do concurrently run "$part"; done
  run "${together[0]}"
  wait
  for part in "${together[@]}"; do result "$part"; done
done

echo "== slowest tests, those from the cache as long as they took when they ran"
find "$work" -name '*.json' -exec cat {} + | "$gotestsum" tool slowest --num 20
printf '%s\n' "== result" "${times[@]}"
if ((${#failed[@]})); then
  { echo "== failed, and how to repeat it"; cat "$work/failures"; echo "or all of the failed parts: hack/test.sh ${failed[*]}"; } >&2
  exit 1
fi
