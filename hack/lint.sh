#!/usr/bin/env bash
# Lints or formats. usage: hack/lint.sh root|lab|fmt ...
#
# The lab is linted separately: it links all of Kubernetes, which takes minutes to load. It is skipped when all that it
# depends on was clean before, in any checkout: a checksum of that is stored in the cache directory.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

linter() { # folder, arguments
  local folder=$1 root=$PWD
  shift
  (cd "$folder" && go tool -modfile="$root/hack/tools/golangci-lint/go.mod" golangci-lint "$@")
}

# all runs the linter in all modules but the lab's.
all() {
  local module
  for module in . e2e/autoscaler hack/tools/image hack/tools/protobuf driver/bridge driver/bridge/azure driver/aws driver/azure cmd/kubectl-mcf; do
    linter "$module" "$@" || return
  done
}

lab_inputs() {
  {
    find e2e/lab e2e/simulated apis client driver internal -type f -print0
    printf '%s\0' .golangci.yml go.mod go.sum hack/tools/golangci-lint/go.mod
  } | sort -z | xargs -0 sha256sum
  go version
}

lint_lab() {
  local clean sum
  clean=${XDG_CACHE_HOME:-$HOME/.cache}/machine-controller-fleet/lab-is-lint-free
  sum=$(lab_inputs | sha256sum | cut -d' ' -f1)
  if [[ -f $clean/$sum ]]; then
    echo "lint lab: nothing has changed since it was clean"
    return
  fi
  echo "lint lab"
  linter e2e/lab run ./...
  mkdir -p "$clean"
  touch "$clean/$sum"
}

for what in "$@"; do
  case $what in
    root) echo "lint root" && all run ./... ;;
    lab) lint_lab ;;
    fmt) all fmt && linter e2e/lab fmt ;;
    *) echo "hack/lint.sh: expected root, lab or fmt, got '$what'" >&2 && exit 2 ;;
  esac
done
