package main

import "testing"

// Each equivalent mutant is in the code, and has a reason; make mutants checks that it compiles,
// too.
func TestEquivalents(t *testing.T) {
	const root = "../.."
	jobs, err := jobsOf(options{root: root, level: own})
	if err != nil {
		t.Fatal(err)
	}
	if err := explain(root, jobs); err != nil {
		t.Error(err)
	}
}
