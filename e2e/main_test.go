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

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// labVariable names the folder of the lab that the tests share. When it is set, that lab has to
	// run already.
	labVariable = "LAB_DIR"
	// labsVariable is set for the process that runs the tests: the folder for labs that tests start.
	labsVariable = "E2E_LABS"
	// parallelTests is how many tests run at a time. They mostly wait, for VMs and drains, so that two
	// processors serve eight; with many more, each request takes seconds.
	parallelTests = "8"
)

// TestMain runs the tests in a separate process. This one owns the labs, and keeps running when a
// panic or an interrupt ends the other one. So it can stop all labs in the end.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(labsVariable) == "" {
		os.Exit(own())
	}
	if err := errors.Join(flag.Set("test.parallel", parallelTests), selectTests()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// own runs the tests, and stops all labs. It returns the exit code of the tests.
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
	tests := exec.CommandContext(ctx, os.Args[0], os.Args[1:]...)
	tests.Env = append(os.Environ(), labsVariable+"="+labs)
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

// forbidden returns the requests of replicas of any lab below the folder that the chart's access
// rules forbid.
func forbidden(labs string) error {
	logs, err := filepath.Glob(filepath.Join(labs, "*", "audit.log"))
	for _, log := range logs {
		err = errors.Join(err, harness.Forbidden(filepath.Dir(log)))
	}
	return err
}

// sharedLab is the lab of all tests that do not need a separate one: control and target cluster
// are two.
var sharedLab = sync.OnceValues(func() (*harness.Lab, error) {
	if dir := os.Getenv(labVariable); dir != "" {
		return harness.Open(context.Background(), dir)
	}
	return up(context.Background(), harness.Options{Dir: filepath.Join(os.Getenv(labsVariable), "shared"), Clusters: 2, Slots: slots})
})

// up starts a lab, and waits until its fleet holds all slots: a MachineDeployment without a
// strategy that is older than its slot's Lease counts as one from before the fleet, and is not
// reconciled.
func up(ctx context.Context, options harness.Options) (*harness.Lab, error) {
	lab, err := harness.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	return lab, lab.WaitHeld(ctx, lab.SlotCount)
}

// shared returns the shared lab.
func shared(t *testing.T) *harness.Lab {
	t.Helper()
	lab, err := sharedLab()
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// fewSlots is the number of slots in labs of single tests. A fleet sends about a thousand requests,
// nearly all of them writes, before it holds 256 slots, the default, which the faults (e2e/chaos)
// and the chart (e2e/helm) have.
const fewSlots = 32

// startLab starts a lab for one test, with one cluster and fewSlots.
func startLab(t *testing.T, name string, change ...func(*harness.Options)) *harness.Lab {
	t.Helper()
	options := harness.Options{Dir: filepath.Join(os.Getenv(labsVariable), name), Clusters: 1, Slots: fewSlots}
	for _, f := range change {
		f(&options)
	}
	lab, err := up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return lab
}
