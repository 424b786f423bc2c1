#!/usr/bin/env bash
# Runs the tests repeatedly, some of the runs beside a compiler, and prints a table of what failed. Unit tests are not
# cached: each run has another order, whose seed is the number of the run. usage: hack/again.sh <times> [<how many beside a
# compiler> [<part> ...]]; without parts those of make test
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

times=${1:-20} beside=${2:-0}
shift $(($# < 2 ? $# : 2))
parts=("$@")
[[ $times =~ ^[1-9][0-9]*$ && $beside =~ ^[0-9]+$ ]] && ((beside <= times)) ||
  { echo "hack/again.sh: expected the number of runs, and how many of them beside a compiler, got '$times' and '$beside'" >&2; exit 2; }

logs=$(mktemp -d "${TMPDIR:-/tmp}/again-XXXXXX")
echo "again: $times times ${parts[*]:-all parts}, the last $beside beside a compiler; the logs are in $logs"

# The compiler builds the fleet repeatedly, at normal priority, with as many processes as there are cores.
# It has a cache and a process group of its own.
load=
compile() {
  set -m
  (while GOCACHE=$logs/cache go build -a -o /dev/null ./cmd/machine-controller-fleet; do :; done) >"$logs/compiler.log" 2>&1 &
  load=$!
  set +m
}
end_load() { [[ -z $load ]] || { kill -- "-$load"; wait "$load"; load=; } 2>/dev/null; rm -rf "$logs/cache"; }
trap end_load EXIT
trap 'exit 130' INT

table=() failed=0
for run in $(seq "$times"); do
  beside_compiler=-
  if ((run > times - beside)); then beside_compiler=compiler; [[ -n $load ]] || compile; fi
  result=$logs/$run.results
  : >"$result"
  SHUFFLE=$run RESULTS=$result hack/test.sh "${parts[@]}" >"$logs/$run.log" 2>&1 || failed=$((failed + 1))
  if [[ -n $load ]] && ! kill -0 "$load" 2>/dev/null; then beside_compiler='compiler ended'; failed=$((failed + 1)) load=; fi
  row=$(awk -v run="$run" -v beside="$beside_compiler" '
    $1 == "part" {cells = cells sprintf("  %s %s %d s", $2, $3, $4)}
    $1 == "test" {sub("^test ", ""); tests = tests "\n      " $0}
    END {printf "%3d  %-8s%s%s", run, beside, cells, tests}' "$result")
  echo "$row"
  table+=("$row")
done

printf '%s\n' "== again: $failed of $times failed" "${table[@]}"
((failed == 0)) || { echo "the logs are in $logs" >&2; exit 1; }
rm -rf "$logs"
