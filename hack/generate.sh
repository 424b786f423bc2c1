#!/usr/bin/env bash
# Generates from the API types in apis/: deep copies, CRDs, typed client, listers, informers; from the protocols of drivers and of the
# autoscaler their Go code; the pages in docs/ that are generated from code; and the chart's dashboards, objectives, and the index of its alerts.
# Running it again changes nothing, and a generator that fails changes nothing. The generators are pinned in
# hack/tools/go.mod and hack/tools/protobuf/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/env.sh

module=$(go list -m)
types=(apis/machine/v1alpha1 apis/fleet/v1alpha1)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

run() { go tool -modfile=hack/tools/go.mod "$@"; }

deepcopy() {
  local group
  for group in "${types[@]}"; do
    run controller-gen object paths="./$group" output:object:dir="$new/deepcopy/$group"
  done
}

definitions() {
  # Labels and annotations of templates get a schema, so that a number where a string must be is rejected at once, and
  # does not break every client that reads the list later.
  local group
  for group in "${types[@]}"; do
    run controller-gen crd:generateEmbeddedObjectMeta=true paths="./$group" output:crd:dir="$new/crds/$group"
  done
  # The API server accepts the rule that compares selector and template only if it can compute its maximal cost.
  # Markers cannot put limits on the fields of a type of another module. A longer value is no label.
  sed -i -e '/^ *matchLabels:$/,/^ *type: object$/ {
    s/^\( *\)type: string$/\1maxLength: 63\n&/
    s/^\( *\)type: object$/\1maxProperties: 1000\n&/
  }' "$new"/crds/*/*/*/*.yaml
  # The same for the rules about the expressions of a selector; another rule allows fewer.
  sed -i -e '/^ *matchExpressions:$/,/^ *matchLabels:$/ {
    s/^\( *\)type: array$/\1maxItems: 100\n&/
    s/^\( *\)type: string$/\1maxLength: 317\n&/
  }' "$new"/crds/apis/machine/*/*.yaml
  sed -i -f hack/machinedeployments.sed "$new"/crds/apis/machine/*/*_machinedeployments.yaml
}

client() {
  local client=$module/client
  local inputs=("${types[@]#apis/}") packages=("${types[@]/#/$module/}")
  run client-gen --clientset-name versioned --input-base "$module/apis" --input "$(IFS=,; echo "${inputs[*]}")" \
    --output-pkg "$client/clientset" --output-dir "$new/client/clientset"
  run lister-gen "${packages[@]}" --output-pkg "$client/listers" --output-dir "$new/client/listers"
  run informer-gen "${packages[@]}" --versioned-clientset-package "$client/clientset/versioned" \
    --listers-package "$client/listers" --output-pkg "$client/informers" --output-dir "$new/client/informers"
}

protocols=(driver/plugin/v1/driver.proto internal/autoscaler/externalgrpc/externalgrpc.proto)

protocol() {
  local root=$PWD
  (cd hack/tools/protobuf && go run . "$root" "$new/protocol" "${protocols[@]}")
}

replace() {
  local group
  for group in "${types[@]}"; do
    mv "$new/deepcopy/$group"/*.go "$group/"
    rm -f "$group"/crds/*.yaml
    mv "$new/crds/$group"/*.yaml "$group/crds/"
  done
  rm -rf client/clientset client/listers client/informers
  mv "$new"/client/* client/
  local source folder
  for source in "${protocols[@]}"; do
    folder=$(dirname "$source")
    mv "$new/protocol/$folder"/*.go "$folder/"
  done
}

# Tests compare these pages with the code; the same tests write them.
pages() {
  go test -count=1 ./apis/machine/v1alpha1 -run TestEventsPage -args -update
  go test -count=1 ./controllers/machine/lifecycle -run TestDiagram -args -update
  go test -count=1 ./internal/archtest -run "TestLog(Lines|Keys)|TestControllers|Test(API|Keys)Page" -args -update
}

monitoring() { go run ./hack/monitoring -chart charts/machine-controller-fleet -runbooks docs/runbooks; }

deepcopy
definitions
client
protocol
replace
pages
monitoring
