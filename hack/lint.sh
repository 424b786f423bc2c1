#!/usr/bin/env bash
# Lints or formats. usage: hack/lint.sh root|lab|fmt ...
#
# The lab has a run of its own: it links all of Kubernetes, which takes long to load. It is skipped while nothing that
# it depends on has changed since its last clean run; bin/.lint-lab holds a checksum of that.
set -euo pipefail
cd "$(dirname "$0")/.."

linter() { # folder, arguments
  local folder=$1 root=$PWD
  shift
  (cd "$folder" && go tool -modfile="$root/tools/golangci-lint/go.mod" golangci-lint "$@")
}

lab_inputs() {
  {
    find lab apis client driver -type f -print0
    printf '%s\0' .golangci.yml go.mod go.sum tools/golangci-lint/go.mod
  } | sort -z | xargs -0 sha256sum
  go version
}

lint_lab() {
  local stamp=bin/.lint-lab now
  now=$(lab_inputs | sha256sum)
  if [[ -f $stamp && $(<"$stamp") == "$now" ]]; then
    echo "lint lab: unchanged since the last clean run"
    return
  fi
  echo "lint lab"
  linter lab run ./...
  mkdir -p bin
  echo "$now" >"$stamp"
}

for what in "$@"; do
  case $what in
    root) echo "lint root" && linter . run ./... ;;
    lab) lint_lab ;;
    fmt) linter . fmt && linter lab fmt ;;
    *) echo "hack/lint.sh: want root, lab or fmt, got '$what'" >&2 && exit 2 ;;
  esac
done
