//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// labVariable names the folder of the lab that the tests share. When it is set, that lab has to run already.
	labVariable = "LAB_DIR"
	// labsVariable is set for the process that runs the tests: the folder for labs that tests start themselves.
	labsVariable = "E2E_LABS"
	// parallelTests is larger than the number of tests: one that waits for its turn keeps no other from running. What is scarce is
	// bounded where it is used: see takeTurns.
	parallelTests = "1000"
)

// TestMain runs the tests in a separate process. This one owns the labs, and keeps running when a panic or an interrupt ends the
// other one. So it can stop all labs in the end.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(labsVariable) == "" {
		os.Exit(own())
	}
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	go turns.adjust()
	os.Exit(m.Run())
}

// own starts the shared lab, runs the tests, and stops all labs. It returns the exit code of the tests.
func own() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	labs, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	err = runTests(ctx, labs)
	err = errors.Join(err, stopLabs(ctx, labs), forbidden(labs))
	if err == nil {
		err = os.RemoveAll(labs)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "e2e: %v\ne2e: the labs' logs are in %s\n", err, labs)
	if lab := os.Getenv(labVariable); lab != "" {
		fmt.Fprintln(os.Stderr, "e2e: and in", lab)
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() > 0 {
		return failed.ExitCode()
	}
	return 1
}

func runTests(ctx context.Context, labs string) error {
	shared := os.Getenv(labVariable)
	if shared == "" {
		started := time.Now()
		shared = filepath.Join(labs, "shared")
		if _, err := harness.Up(ctx, harness.Options{Dir: shared, Clusters: 2}); err != nil {
			return err
		}
		fmt.Printf("e2e: a lab with two clusters is up after %.1f s\n", time.Since(started).Seconds())
	}
	tests := exec.CommandContext(ctx, os.Args[0], os.Args[1:]...)
	tests.Env = append(os.Environ(), labVariable+"="+shared, labsVariable+"="+labs)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	return tests.Run()
}

// stopLabs stops every lab below the folder, including those that tests have not stopped.
func stopLabs(ctx context.Context, labs string) error {
	dirs, err := filepath.Glob(filepath.Join(labs, "*"))
	for _, dir := range dirs {
		err = errors.Join(err, harness.Down(ctx, dir))
	}
	return err
}

// forbidden returns the requests of replicas of any lab below the folder that the chart's access rules forbid.
func forbidden(labs string) error {
	logs, err := filepath.Glob(filepath.Join(labs, "*", "audit.log"))
	for _, log := range logs {
		err = errors.Join(err, harness.Forbidden(filepath.Dir(log)))
	}
	return err
}

// starting bounds the labs that start at a time: a start takes 5 s of CPU, 8 s on a busy computer, and with a dozen on two cores fleets miss
// their deadlines.
var starting = make(chan struct{}, 2)

// sharedLab is the lab of all tests that do not need one of their own: control and target cluster are two.
var sharedLab = sync.OnceValues(func() (*harness.Lab, error) { return harness.Open(context.Background(), os.Getenv(labVariable)) })

// shared returns the lab to a test that takes a turn in it.
func shared(t *testing.T) *harness.Lab {
	t.Helper()
	return sharedEarly(t)()
}

// sharedEarly is shared for the tests that take longest. They call it before t.Parallel, so that their turns come before those of the others,
// and call what it returns after it, which waits for the turn.
func sharedEarly(t *testing.T) func() *harness.Lab {
	t.Helper()
	turn := make(chan struct{})
	go func() {
		defer close(turn)
		takeTurns(t, 1)
	}()
	return func() *harness.Lab {
		t.Helper()
		<-turn
		return openShared(t)
	}
}

// openShared returns the lab to a test that starts no machines in it.
func openShared(t *testing.T) *harness.Lab {
	t.Helper()
	lab, err := sharedLab()
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// up starts a lab, after those that are starting.
func up(ctx context.Context, options harness.Options) (*harness.Lab, error) {
	starting <- struct{}{}
	defer func() { <-starting }()
	return harness.Up(ctx, options)
}

// fewSlots is the number of slots in labs of single tests. A fleet makes about a thousand requests, nearly all of them writes, before
// it holds 256 slots, the default, which the shared lab has.
const fewSlots = 32

// startLab starts a lab for one test, with one cluster and fewSlots.
func startLab(t *testing.T, name string, change ...func(*harness.Options)) *harness.Lab {
	t.Helper()
	return startLabEarly(t, 2, name, change...)()
}

// startLabEarly is startLab for the tests that take longest. They call it before t.Parallel, so that their labs are started before those
// of the others, and call what it returns after it, which waits for the lab. count is the number of turns of the test.
func startLabEarly(t *testing.T, count int, name string, change ...func(*harness.Options)) func() *harness.Lab {
	t.Helper()
	options := harness.Options{Dir: filepath.Join(os.Getenv(labsVariable), name), Clusters: 1, Slots: fewSlots}
	for _, f := range change {
		f(&options)
	}
	type result struct {
		lab *harness.Lab
		err error
	}
	started := make(chan result, 1)
	go func() {
		takeTurns(t, count)
		lab, err := up(t.Context(), options)
		started <- result{lab, err}
	}()
	return func() *harness.Lab {
		t.Helper()
		r := <-started
		if r.err != nil {
			t.Fatal(r.err)
		}
		t.Cleanup(func() {
			if err := r.lab.Down(t.Context()); err != nil {
				t.Error(err)
			}
		})
		return r.lab
	}
}
