#!/usr/bin/env bash
# Checks what must hold before a commit. Runs all checks, so that one run shows all failures.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. hack/env.sh

# Every Go module of the repository.
# Without hack/tools/keda: to tidy it, Go downloads clients of some 60 services. hack/build-keda.sh, which needs them, checks it.
modules() { find . -name go.mod -not -path './bin/*' -not -path './hack/tools/keda/*' -printf '%h\n' | sort; }

modules_are_tidy() {
  local module failed=0
  for module in $(modules); do
    (cd "$module" && go mod tidy -diff) || { echo "$module: run 'go mod tidy' there"; failed=1; }
  done
  return $failed
}

checksums() { find apis client driver/plugin/v1 charts e2e/lab/manifests docs -type f -print0 | sort -z | xargs -0 sha256sum; }

# Generates in place: stale code is then ready to be committed.
generated_code_is_current() {
  local before after
  before=$(checksums)
  hack/generate.sh >/dev/null && hack/render-chart.sh || return 1
  after=$(checksums)
  [[ $before == "$after" ]] && return
  echo "generated code was not current and has been generated again; commit it:"
  diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print "  " $3}' | sort -u
  return 1
}

repository_rules_hold() { go test ./internal/archtest; }
chart_is_sound() { hack/chart-lint.sh; }
scripts_parse() { bash -n hack/*.sh .ci/run; }
root_is_lint_free() { hack/lint.sh root; }
no_vulnerability_is_known() { hack/vuln.sh --if-reachable; }
lab_is_lint_free() { hack/lint.sh lab; }

failed=()
for check in scripts_parse modules_are_tidy generated_code_is_current repository_rules_hold chart_is_sound root_is_lint_free lab_is_lint_free no_vulnerability_is_known; do
  start=$SECONDS
  $check
  case $? in
    0) verdict=ok ;;
    77) verdict=SKIPPED ;; # it could not be run here, and has printed the cause
    *) verdict=FAILED && failed+=("$check") ;;
  esac
  printf '%-28s %-7s %4ds\n' "$check" "$verdict" $((SECONDS - start))
done
if ((${#failed[@]})); then
  echo "verify failed: ${failed[*]}" >&2
  exit 1
fi
