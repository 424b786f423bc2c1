package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// options are the flags.
type options struct {
	root, only   string
	level        level
	seeds, first string
	update, list bool
	limit        time.Duration
	clock        clock.PassiveClock
}

func main() {
	o := options{clock: clock.RealClock{}}
	flag.StringVar(&o.root, "root", ".", "folder of the repository")
	flag.StringVar((*string)(&o.level), "nets", string(ci), "own for the tests of the mutated package, quick, ci, or nightly for all nets")
	flag.StringVar(&o.only, "only", "", "run mutants whose row of the list contains this text only")
	flag.StringVar(&o.seeds, "seeds", "20000", "worlds of the nightly simulation for each mutant")
	flag.StringVar(&o.first, "first", "2000", "the first of them")
	flag.BoolVar(&o.update, "update", false, "write the results into the list; reasons for equivalence stay")
	flag.BoolVar(&o.list, "list", false, "write the list anew and run nothing")
	flag.DurationVar(&o.limit, "limit", 12*time.Hour, "end after this time; the next run continues")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// job is a mutant and the nets that should kill it.
type job struct {
	*mutant
	area string
	nets []net
}

func run(ctx context.Context, o options, out io.Writer) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	o.root = root
	jobs, err := jobsOf(o)
	if err != nil {
		return err
	}
	w := &workshop{root: root, dir: filepath.Join(root, ".mutants")}
	for _, j := range jobs {
		w.mutants = append(w.mutants, j.mutant)
	}
	dropped, err := w.prepare(ctx)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j job) bool { return slices.Contains(dropped, j.mutant) })
	name := filepath.Join(root, "e2e/mutants/mutants.tsv")
	rows, err := readList(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mutants; %d that do not compile are left out\n", len(w.mutants), len(dropped))
	if o.list {
		return writeList(name, w.mutants, rows)
	}
	if err := checkList(w.mutants, rows); err != nil && !o.update {
		return err
	}
	r, err := newRunner(w, o.clock)
	if err != nil {
		return err
	}
	results, err := runJobs(ctx, o, r, jobs, rows, out)
	if err != nil {
		return err
	}
	report(out, jobs, results, rows)
	if o.update {
		return writeList(name, w.mutants, updated(o, jobs, results, rows))
	}
	return verdict(o, jobs, results, rows)
}

// jobsOf finds all mutants, numbered from one.
func jobsOf(o options) (jobs []job, err error) {
	number := 0
	for _, a := range areas(o.seeds, o.first) {
		found, err := find(o.root, a.files, func() int { number++; return number })
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			jobs = append(jobs, job{m, a.name, upTo(o.level, a.netsOf(m.pkg()))})
		}
	}
	return jobs, nil
}

// upTo leaves out the nets beyond a level.
func upTo(most level, nets []net) []net {
	order := []level{own, quick, ci, nightly}
	return slices.DeleteFunc(nets, func(n net) bool { return slices.Index(order, n.level) > slices.Index(order, most) })
}

// checkList reports mutants that are not listed, and rows without a mutant.
func checkList(mutants []*mutant, rows map[string]listed) error {
	known := map[string]bool{}
	var missing, gone []string
	for _, m := range mutants {
		known[m.id] = true
		if _, ok := rows[m.id]; !ok {
			missing = append(missing, m.id)
		}
	}
	for id := range rows {
		if !known[id] {
			gone = append(gone, id)
		}
	}
	if len(missing)+len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	return fmt.Errorf("the list does not match the code: not listed %q, not in the code %q; write it with make mutants UPDATE=1", missing, gone)
}

// runJobs runs all mutants that the text selects, within the limit of time.
func runJobs(ctx context.Context, o options, r *runner, jobs []job, rows map[string]listed, out io.Writer) (map[string]result, error) {
	results := map[string]result{}
	begun, last := o.clock.Now(), o.clock.Now()
	for i, j := range jobs {
		row := strings.Join([]string{j.id, j.file, j.change, rows[j.id].expected}, " ")
		if !strings.Contains(row, o.only) {
			continue
		}
		if o.clock.Since(begun) > o.limit {
			fmt.Fprintf(out, "stopped after %v at mutant %d of %d; run again to continue\n", o.limit, i, len(jobs))
			break
		}
		got, err := r.judge(ctx, j.nets, j.mutant)
		if err != nil {
			return nil, err
		}
		results[j.id] = got
		if o.only != "" || o.clock.Since(last) > 30*time.Second {
			fmt.Fprintf(out, "%4d of %d  %v  %s %s %s: %s\n", i+1, len(jobs), o.clock.Since(begun).Round(time.Second), j.id, got.outcome, got.net, j.change)
			last = o.clock.Now()
		}
	}
	fmt.Fprintf(out, "%d mutants in %v, %d runs of a test binary\n", len(results), o.clock.Since(begun).Round(time.Second), r.ran)
	return results, nil
}
