#!/usr/bin/env bash
# Builds the lab into bin/: hyperkube (and a link to it, kubectl), lab, cloudsim, simulated-driver.
# Go builds only what has changed: without changes this takes a second. The first time Kubernetes itself is compiled, which
# takes minutes, and a line shows the progress.
set -euo pipefail
cd "$(dirname "$0")/../e2e/lab"
. ../../hack/env.sh

# Kubernetes reports the version that the linker sets; clients cannot parse an empty one.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
package=k8s.io/component-base/version
stamp="-s -w -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
stamp+=" -X $package.gitTreeState=clean -X $package.gitCommit=none -X $package.buildDate=1970-01-01T00:00:00Z"
stamp+=" -X k8s.io/client-go/pkg/version.gitVersion=$version"

# Prints until it is killed how long the build takes: on a terminal every second, elsewhere at longer intervals.
ticker() {
  local start=$SECONDS elapsed
  while sleep 1; do
    elapsed=$((SECONDS - start))
    if [[ -t 2 ]]; then
      ((elapsed < 3)) || printf '\rbuilding Kubernetes %s for the lab: %d s (the first time takes 5 to 10 minutes)' "$version" "$elapsed" >&2
    elif ((elapsed == 5 || elapsed % 30 == 0)); then
      echo "building Kubernetes $version for the lab: $elapsed s (the first time takes 5 to 10 minutes)" >&2
    fi
  done
}

ticker &
ticker=$!
trap 'kill "$ticker" && wait "$ticker" || true; [[ ! -t 2 ]] || printf "\r\e[K" >&2' EXIT
# One build: the smaller programs are linked while packages of Kubernetes are compiled.
go build -buildvcs=false -ldflags "$stamp" -o ../../bin/ ./cmd/lab ./cmd/cloudsim ./cmd/hyperkube
go -C ../.. build -buildvcs=false -o bin/ ./e2e/simulated/cmd/simulated-driver
ln -sfn hyperkube ../../bin/kubectl
