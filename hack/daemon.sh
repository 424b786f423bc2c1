#!/usr/bin/env bash
# Builds machine-config-daemon into bin/daemon: a static file for each platform, and SHA256SUMS. The same sources, VERSION, COMMIT and DATE
# give the same bytes.
#
# PLATFORMS are split at commas.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh
. hack/version.sh

out=bin/daemon
rm -rf "$out"
mkdir -p "$out"
for platform in $(tr , ' ' <<<"${PLATFORMS:-linux/amd64,linux/arm64}"); do
  os=${platform%/*} arch=${platform#*/}
  [[ $os == linux && -n $arch && $arch != "$platform" ]] ||
    { echo "hack/daemon.sh: PLATFORMS: expected linux/<architecture>, got '$platform'" >&2; exit 2; }
  GOOS=$os GOARCH=$arch go build -buildvcs=false -ldflags "-s -w -buildid= $(stamp)" -o "$out/machine-config-daemon-$os-$arch" ./cmd/machine-config-daemon
done
(cd "$out" && sha256sum machine-config-daemon-* | tee SHA256SUMS)
