#!/usr/bin/env bash
# Prints the flags of the linker for what binaries report of their build (internal/buildinfo), or, sourced, sets VERSION, COMMIT and DATE.
# Those that are empty are the checkout's, and equal for all programs: the tag v… of its commit, or else a pseudo-version as Go's. Go itself
# records another one for each module, and none with -buildvcs=false, of a worktree, or in a build of a folder without its repository.
# usage: [VERSION=… COMMIT=… DATE=…] hack/version.sh; . hack/version.sh, in a folder of the checkout.

# of_checkout sets the empty ones, and nothing where there is no checkout.
of_checkout() {
  local commit last seconds base=v0.0.0- dirty=
  commit=$(git rev-parse HEAD 2>/dev/null) && seconds=$(git log -1 --format=%ct) || return 0
  [[ -z $(git status --porcelain) ]] || dirty=dirty
  if last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    case $last in
      *-*) base=$last.0. ;;
      *) base=${last%.*}.$((${last##*.} + 1))-0. ;;
    esac
  fi
  VERSION=${VERSION:-$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null ||
    echo "$base$(TZ=UTC printf '%(%Y%m%d%H%M%S)T' "$seconds")-${commit:0:12}")${dirty:+"+$dirty"}}
  COMMIT=${COMMIT:-$commit${dirty:+-$dirty}}
  DATE=${DATE:-$(TZ=UTC printf '%(%Y-%m-%dT%H:%M:%SZ)T' "$seconds")}
}

# stamp prints the flags.
stamp() {
  local buildinfo=github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo
  echo "${VERSION:+-X $buildinfo.version=$VERSION }${COMMIT:+-X $buildinfo.commit=$COMMIT }${DATE:+-X $buildinfo.date=$DATE}"
}

VERSION=${VERSION:-} COMMIT=${COMMIT:-} DATE=${DATE:-}
of_checkout
[[ ${BASH_SOURCE[0]} != "$0" ]] || stamp
