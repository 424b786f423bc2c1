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
	limit        time.Duration
	clock        clock.PassiveClock
}

func main() {
	o := options{clock: clock.RealClock{}}
	flag.StringVar(&o.root, "root", ".", "folder of the repository")
	flag.StringVar((*string)(&o.level), "nets", string(ci), "own for the tests of the mutated package, quick, ci, or nightly for all nets")
	flag.StringVar(&o.only, "only", "", "run the mutants with this text in ID, file, change or reason only")
	flag.StringVar(&o.seeds, "seeds", "20000", "worlds of the nightly simulation for each mutant")
	flag.StringVar(&o.first, "first", "2000", "the first of them")
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
	nets []net
	// equivalent is the reason why no test can kill the mutant.
	equivalent string
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
	fmt.Fprintf(out, "%d mutants; %d that do not compile are left out\n", len(w.mutants), len(dropped))
	if err := explain(root, jobs); err != nil {
		return err
	}
	r, err := newRunner(w, o.clock)
	if err != nil {
		return err
	}
	results, err := runJobs(ctx, o, r, jobs, out)
	if err != nil {
		return err
	}
	report(out, jobs, results)
	return verdict(o, jobs, results)
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
			jobs = append(jobs, job{mutant: m, nets: upTo(o.level, a.netsOf(m.pkg()))})
		}
	}
	return jobs, nil
}

// upTo leaves out the nets beyond a level.
func upTo(most level, nets []net) []net {
	order := []level{own, quick, ci, nightly}
	return slices.DeleteFunc(nets, func(n net) bool { return slices.Index(order, n.level) > slices.Index(order, most) })
}

// runJobs runs all mutants that the text selects, within the limit of time.
func runJobs(ctx context.Context, o options, r *runner, jobs []job, out io.Writer) (map[string]result, error) {
	results := map[string]result{}
	begun, last := o.clock.Now(), o.clock.Now()
	for i, j := range jobs {
		if !strings.Contains(strings.Join([]string{j.id, j.file, j.change, j.equivalent}, " "), o.only) {
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
			fmt.Fprintf(out, "%4d of %d  %v  %s %s %s: %s\n",
				i+1, len(jobs), o.clock.Since(begun).Round(time.Second), j.id, got.outcome, got.net, j.change)
			last = o.clock.Now()
		}
	}
	fmt.Fprintf(out, "%d mutants in %v, %d runs of a test binary\n", len(results), o.clock.Since(begun).Round(time.Second), r.ran)
	return results, nil
}
