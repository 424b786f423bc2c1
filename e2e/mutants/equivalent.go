package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// equivalentName is the file of the mutants that no test can kill: an ID and the reason in each
// line.
const equivalentName = "e2e/mutants/equivalent.tsv"

// explain gives the jobs of equivalent mutants their reasons. Errors: lines without ID and reason,
// IDs that occur twice or are not in the code.
func explain(root string, jobs []job) error {
	content, err := os.ReadFile(filepath.Join(root, equivalentName))
	if err != nil {
		return fmt.Errorf("read the equivalent mutants: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		at := slices.IndexFunc(jobs, func(j job) bool { return j.id == id })
		if at < 0 {
			return fmt.Errorf("%s: %s is not in the code; remove it, or give its reason to the mutant that has replaced it", equivalentName, id)
		}
		if reason == "" || jobs[at].equivalent != "" {
			return fmt.Errorf("%s: expected the ID of a mutant, once, and a reason, got %q", equivalentName, line)
		}
		jobs[at].equivalent = reason
	}
	return nil
}
