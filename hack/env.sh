# Sourced by the scripts that run go. Go keeps a set of cache entries for each of these settings, and one of Kubernetes costs ten minutes: so
# all builds and tests use the same ones, without cgo, as the image and what runs on machines are built. Only the race detector needs cgo.
export CGO_ENABLED=${CGO_ENABLED:-0}
[[ " ${GOFLAGS:-} " == *" -trimpath "* ]] || export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"
