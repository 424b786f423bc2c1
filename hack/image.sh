#!/usr/bin/env bash
# Builds the container image into bin/image, or pushes what is there, with the program in hack/tools/image.
# usage: hack/image.sh build|push
#
# PROGRAM is the folder of the program, the fleet's by default. IMAGE is the name with a tag; to push, with the registry. PLATFORMS are split at commas. VERSION, COMMIT and DATE are those of
# the sources; without COMMIT and DATE they are those of the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

image() { go run -C hack/tools/image -buildvcs=false . "$@"; }

# checkout prints commit and date of the checkout, and nothing where there is none.
checkout() {
  local commit dirty=
  commit=$(git rev-parse HEAD 2>/dev/null) || return 0
  [[ -z $(git status --porcelain) ]] || dirty=-dirty
  echo "$commit$dirty" "$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"
}

case ${1:-} in
  build)
    program=${PROGRAM:-cmd/machine-controller-fleet}
    read -r commit date < <(checkout) || true
    image build -source "$PWD" -dir "$PWD/bin/image" -program "$program" -name "${IMAGE:-${program##*/}:dev}" \
      -platforms "${PLATFORMS:-linux/amd64,linux/arm64}" \
      -version "${VERSION:-}" -commit "${COMMIT:-$commit}" -date "${DATE:-$date}"
    ;;
  push)
    image push -dir "$PWD/bin/image" "${IMAGE:?expected IMAGE=<registry>/<name>:<tag>}"
    ;;
  *)
    echo "hack/image.sh: expected build or push, got '$*'" >&2
    exit 2
    ;;
esac
