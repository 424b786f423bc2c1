package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// report writes the table of packages and nets, the survivors, and the mutants that only the time
// limit has killed.
func report(out io.Writer, jobs []job, results map[string]result) {
	table := map[string]map[string]int{}
	columns := map[string]bool{}
	for _, j := range jobs {
		got, ran := results[j.id]
		if !ran {
			continue
		}
		count := table[j.pkg()]
		if count == nil {
			count = map[string]int{}
			table[j.pkg()] = count
		}
		count["mutants"]++
		column := column(j, got)
		count[column]++
		columns[column] = true
		if got.outcome == timedOut {
			count["by time limit"]++
			columns["by time limit"] = true
		}
	}
	names := append([]string{"mutants"}, slices.Sorted(maps.Keys(columns))...)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "package\t%s\n", strings.Join(names, "\t"))
	total := map[string]int{}
	for _, pkg := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprint(w, pkg)
		for _, name := range names {
			fmt.Fprintf(w, "\t%d", table[pkg][name])
			total[name] += table[pkg][name]
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "all")
	for _, name := range names {
		fmt.Fprintf(w, "\t%d", total[name])
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	for _, j := range survivors(jobs, results) {
		fmt.Fprintf(out, "survived: %s (%s): %s\n", j.id, j.file, j.change)
	}
	for _, j := range jobs {
		if got := results[j.id]; got.outcome == timedOut {
			fmt.Fprintf(out, "killed by the time limit of %s: %s (%s): %s\n", got.net, j.id, j.file, j.change)
		}
	}
	for _, j := range jobs {
		if got, ran := results[j.id]; ran && got.outcome != survived && j.equivalent != "" {
			fmt.Fprintf(out, "listed as equivalent, but %s by %s: %s: %s\n", got.outcome, got.net, j.id, j.change)
		}
	}
}

// column is where a mutant is counted.
func column(j job, got result) string {
	switch {
	case got.outcome == survived && j.equivalent != "":
		return "equivalent"
	case got.outcome == survived:
		return "survived"
	case got.net == j.pkg():
		return "own tests"
	}
	return got.net
}

// survivors are the mutants that no net has killed and for which there is no reason.
func survivors(jobs []job, results map[string]result) []job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		got, ran := results[j.id]
		return !ran || got.outcome != survived || j.equivalent != ""
	})
}

// verdict is an error when too many survive: any with the nightly nets, more than one in twenty
// with those of CI. A mutant that is listed as equivalent and was killed is an error, too: the
// reason is wrong.
func verdict(o options, jobs []job, results map[string]result) error {
	remaining := len(survivors(jobs, results))
	for _, j := range jobs {
		if got, ran := results[j.id]; ran && got.outcome != survived && j.equivalent != "" {
			return fmt.Errorf("%s: expected it to survive, since it is listed as equivalent; got %s by %s", j.id, got.outcome, got.net)
		}
	}
	most := 0
	if o.level == ci {
		most = len(results) / 20
	}
	if remaining > most {
		return fmt.Errorf("expected at most %d of %d mutants to survive, got %d", most, len(results), remaining)
	}
	return nil
}
