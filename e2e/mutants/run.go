package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// outcome is the result of a net for a mutant.
type outcome string

const (
	survived outcome = "survived"
	killed   outcome = "killed"
	// timedOut is a kill: the tests did not end.
	timedOut outcome = "timeout"
)

// result is how a mutant ends.
type result struct {
	outcome outcome
	net     string
	level   level
}

// runner runs nets, and stores their outcomes.
type runner struct {
	workshop *workshop
	binaries map[string][2]string // path and content by package
	// usual is how long a net takes without a mutant.
	usual map[string]time.Duration
	cache map[string]outcome
	file  *os.File
	ran   int
	clock clock.PassiveClock
}

// newRunner reads the results of earlier runs.
func newRunner(w *workshop, c clock.PassiveClock) (*runner, error) {
	r := &runner{workshop: w, binaries: map[string][2]string{}, usual: map[string]time.Duration{}, cache: map[string]outcome{}, clock: c}
	name := filepath.Join(w.dir, "results.tsv")
	if content, err := os.ReadFile(name); err == nil {
		for line := range strings.Lines(string(content)) {
			if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
				r.cache[key] = outcome(value)
			}
		}
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the results: %w", err)
	}
	r.file = file
	return r, nil
}

// build builds the binary of a net, and checks that its tests pass without a mutant.
func (r *runner) build(ctx context.Context, n net) error {
	if _, built := r.binaries[n.pkg]; !built {
		name, content, err := r.workshop.binary(ctx, n.pkg)
		if err != nil {
			return err
		}
		r.binaries[n.pkg] = [2]string{name, content}
	}
	key := r.key(n, "none")
	if _, known := r.usual[key]; known {
		return nil
	}
	if text, known := r.cache[key]; known {
		d, err := time.ParseDuration(string(text))
		if err == nil {
			r.usual[key] = d
			return nil
		}
	}
	begun := r.clock.Now()
	got, output, err := r.execute(ctx, n, 0, 20*time.Minute)
	if err != nil {
		return err
	}
	if got != survived {
		return fmt.Errorf("%s without a mutant: expected it to pass, got %s\n%s", n.name, got, tail(output))
	}
	took := r.clock.Since(begun)
	r.usual[key] = took
	return r.remember(key, outcome(took.String()))
}

func (r *runner) key(n net, id string) string {
	return strings.Join([]string{r.binaries[n.pkg][1], id, n.pkg, strings.Join(n.args, " "), strings.Join(n.env, " ")}, "|")
}

func (r *runner) remember(key string, value outcome) error {
	r.cache[key] = value
	if _, err := fmt.Fprintf(r.file, "%s\t%s\n", key, value); err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	return nil
}

// try runs one net with one mutant, unless its result is known.
func (r *runner) try(ctx context.Context, n net, m *mutant) (outcome, error) {
	key := r.key(n, m.id)
	if known, ok := r.cache[key]; ok {
		return known, nil
	}
	limit := 5*time.Second + 6*r.usual[r.key(n, "none")]
	got, _, err := r.execute(ctx, n, m.number, limit)
	if err != nil {
		return "", err
	}
	r.ran++
	return got, r.remember(key, got)
}

// execute runs a test binary in its package's folder. Memory is limited, since a mutant may
// allocate without end.
func (r *runner) execute(ctx context.Context, n net, number int, limit time.Duration) (got outcome, output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-c", `ulimit -v 8000000; exec "$@"`, "sh", r.binaries[n.pkg][0], "-test.failfast"}, n.args...)
	command := exec.CommandContext(ctx, "sh", args...)
	command.Dir = filepath.Join(r.workshop.root, n.pkg)
	command.Env = append(append(os.Environ(), n.env...), "MUTANT="+strconv.Itoa(number), "RAPID_NOFAILFILE=true")
	command.WaitDelay = time.Second
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived, out.String(), nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return timedOut, out.String(), nil
	case errors.As(err, &exit):
		return killed, out.String(), nil
	}
	return "", "", fmt.Errorf("run %s: %w", n.name, err)
}

// judge runs the nets of a mutant until one kills it.
func (r *runner) judge(ctx context.Context, nets []net, m *mutant) (result, error) {
	for _, n := range nets {
		if err := r.build(ctx, n); err != nil {
			return result{}, err
		}
		got, err := r.try(ctx, n, m)
		if err != nil {
			return result{}, err
		}
		if got != survived {
			return result{got, n.name, n.level}, nil
		}
	}
	return result{outcome: survived}, nil
}

func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
