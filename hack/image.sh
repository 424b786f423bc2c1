#!/usr/bin/env bash
# Builds the container image into bin/image, or pushes what is there, with the program in hack/tools/image.
# usage: hack/image.sh build|push
#
# PROGRAM is the folder of the program, the fleet's by default. IMAGE is the name with a tag; to push, with the registry. PLATFORMS are split at commas. VERSION, COMMIT and DATE are those of
# the sources; the checkout's if they are empty.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh
. hack/version.sh

image() { go run -C hack/tools/image -buildvcs=false . "$@"; }

case ${1:-} in
  build)
    program=${PROGRAM:-cmd/machine-controller-fleet}
    image build -source "$PWD" -dir "$PWD/bin/image" -program "$program" -name "${IMAGE:-${program##*/}:dev}" \
      -platforms "${PLATFORMS:-linux/amd64,linux/arm64}" \
      -version "$VERSION" -commit "$COMMIT" -date "$DATE"
    ;;
  push)
    image push -dir "$PWD/bin/image" "${IMAGE:?expected IMAGE=<registry>/<name>:<tag>}"
    ;;
  *)
    echo "hack/image.sh: expected build or push, got '$*'" >&2
    exit 2
    ;;
esac
