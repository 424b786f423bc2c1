package main

import (
	"strings"
	"testing"
)

// Each mutant that needs attention is named: one that survives, one that only a time limit has
// killed, and one whose reason is wrong.
func TestReport(t *testing.T) {
	named := func(id, equivalent string) job {
		return job{mutant: &mutant{id: id, file: "a/b/sample.go", change: "drop a"}, equivalent: equivalent}
	}
	jobs := []job{
		named("killed", ""), named("hangs", ""), named("lives", ""), named("same", "a reason"), named("wrong", "a reason"), named("not-run", ""),
	}
	results := map[string]result{
		"killed": {outcome: killed, net: "a/b"}, "hangs": {outcome: timedOut, net: "simulation"}, "lives": {outcome: survived},
		"same": {outcome: survived}, "wrong": {outcome: killed, net: "a/b"},
	}
	var out strings.Builder
	report(&out, jobs, results)
	for _, want := range []string{
		"survived: lives (a/b/sample.go): drop a\n",
		"killed by the time limit of simulation: hangs (a/b/sample.go): drop a\n",
		"listed as equivalent, but killed by a/b: wrong: drop a\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, &out)
		}
	}
	for name, test := range map[string]struct {
		jobs []job
		fail bool
	}{
		"killed and equivalent": {jobs: []job{jobs[0], jobs[1], jobs[3], jobs[5]}},
		"one survives":          {jobs: jobs[:3], fail: true},
		"a reason is wrong":     {jobs: jobs[4:5], fail: true},
	} {
		if err := verdict(options{level: quick}, test.jobs, results); (err != nil) != test.fail {
			t.Errorf("%s: want an error: %t, got %v", name, test.fail, err)
		}
	}
}
