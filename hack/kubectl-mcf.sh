#!/usr/bin/env bash
# Builds the plugin "kubectl mcf" into bin/krew: for each platform an archive with a static file, SHA256SUMS, and the manifest mcf.yaml for
# krew. The same sources, VERSION, COMMIT and DATE result in the same files.
#
# usage: hack/kubectl-mcf.sh; PLATFORMS, VERSION, COMMIT and DATE are variables, those of the Makefile.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh
. hack/version.sh

version=${VERSION:-v0.0.0}
releases=https://github.com/machine-controller-fleet/machine-controller-fleet/releases/download

out=$PWD/bin/krew
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -e '/^#/d' -e "s/version: VERSION/version: $version/" cmd/kubectl-mcf/krew.yaml >"$out/mcf.yaml"

platforms=${PLATFORMS:-linux/amd64,linux/arm64,darwin/amd64,darwin/arm64}
for platform in ${platforms//,/ }; do
  os=${platform%/*} arch=${platform#*/}
  archive=kubectl-mcf-$os-$arch.tar.gz
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go -C cmd/kubectl-mcf build -buildvcs=false -ldflags "-s -w $(stamp)" -o "$work/kubectl-mcf" .
  install -m 755 cmd/kubectl-mcf/kubectl_complete-mcf "$work"
  cp LICENSE "$work"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -c kubectl-mcf kubectl_complete-mcf LICENSE | gzip -n >"$out/$archive"
  cat >>"$out/mcf.yaml" <<MANIFEST
  - selector: {matchLabels: {os: $os, arch: $arch}}
    uri: $releases/$version/$archive
    sha256: $(sha256sum <"$out/$archive" | cut -d' ' -f1)
    bin: kubectl-mcf
MANIFEST
done
(cd "$out" && sha256sum kubectl-mcf-*.tar.gz | tee SHA256SUMS)
