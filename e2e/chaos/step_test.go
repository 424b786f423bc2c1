//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	stepped = "stepped" // the machine that is killed at each call, in the namespace of this name, with its class
	other   = "other"   // the same for the machine to whose Node its pods move
)

// mostKills is more than a life takes; more kills mean that the life does not end.
const mostKills = 120

// kill is when the process is killed at a call.
type kill int

const (
	notYet kill = iota
	beforeIt
	afterIt
)

func (k kill) String() string { return [...]string{"never at", "before", "after"}[k] }

// shortCalls are the suffixes of the calls that short runs kill at.
var shortCalls = []string{
	"create_machine stepped/stepped", "POST secrets", "/eviction", "delete_machine stepped/stepped",
	"PATCH machines/stepped/status", "PATCH nodes/stepped/status", "DELETE nodes/stepped",
}

// everyCall is the same for long runs. There may be more: a drain writes its progress only in some
// passes, and clouds have other calls.
var everyCall = append([]string{
	"get_machine_status stepped/stepped", "PATCH machines/stepped", "PATCH machineclasses/simulated", "PUT secrets/simulated",
	"PATCH nodes/stepped", "DELETE secrets/bootstrap-token",
}, shortCalls...)

// unspecific is removed from the names of requests: the path of the object, and the id of a token.
var unspecific = regexp.MustCompile(`/apis?/.*?v1(alpha1)?/(namespaces/[^/]+/)?|-[a-z0-9]{6}$`)

// steppedCloud is a cloud at which the life of a machine is stepped through.
type steppedCloud struct {
	options harness.Options
	prepare func(ctx context.Context, lab *harness.Lab, namespace string) error
	// calls are the suffixes of further calls that long runs kill at.
	calls []string
	// oneVM checks that one VM was created for the machine.
	oneVM func(s *stepper)
	// empty returns an error while the cloud has anything, besides what cloudsim runs.
	empty func(ctx context.Context, lab *harness.Lab) error
}

// stepper goes through the life of a machine call by call: the process stops at each, and is killed
// there.
type stepper struct {
	*testing.T
	*bed

	cloud     steppedCloud
	uid       string
	pods      []string        // that are on its Node when it is deleted
	dies      map[string]kill // by call
	kills     int
	isDeleted bool
}

// TestKillAtEachCall stops the process at each write and at each call of the cloud in the life of a
// machine whose Node is drained, and kills it there: once before the call is sent, and once after
// the answer, before the process has received it.
func TestKillAtEachCall(t *testing.T) {
	t.Parallel()
	killAtEachCall(t, steppedCloud{
		options: harness.Options{CloudsimFlags: "--create-latency=100ms --delete-latency=100ms"},
		prepare: func(ctx context.Context, lab *harness.Lab, namespace string) error {
			return lab.Prepare(ctx, namespace, `{"sourceDestCheck":false}`)
		},
		calls: []string{"initialize_machine stepped/stepped"},
		oneVM: (*stepper).oneVM,
		empty: func(context.Context, *harness.Lab) error { return nil },
	})
}

func killAtEachCall(t *testing.T, cloud steppedCloud) {
	t.Helper()
	s := &stepper{T: t, bed: &bed{namespace: stepped}, cloud: cloud, dies: map[string]kill{}}
	// Pods end so slowly that the next process, which needs less than a second to begin, sees them.
	cloud.options.CloudsimFlags += " --boot-time=500ms --pod-termination-time=2s"
	cloud.options.FleetFlags = "--debug-fault-point=slot= --slots=8"
	s.startLab(t, cloud.options)
	s.release() // nothing stops yet
	for _, namespace := range []string{other, stepped} {
		s.must(cloud.prepare(s.ctx, s.lab, namespace))
	}
	s.recorder = record.Start(s.ctx, t, s.lab, metav1.NamespaceAll)
	s.machine(other)
	s.must(s.lab.Running(s.ctx, other, 1))
	s.restart()
	s.uid = s.machine(stepped)
	began := time.Now()
	for s.step() {
	}
	t.Logf("killed %d times in %.1f s", s.kills, time.Since(began).Seconds())
	s.killedAtEach()
	s.release()
	cloud.oneVM(s)
	s.evictedOnce()
	s.idle()
	s.must(s.lab.Machines.MachineV1alpha1().Machines(other).Delete(s.ctx, other, metav1.DeleteOptions{}))
	s.must(harness.Eventually(s.ctx, "nothing is left", func(ctx context.Context) error {
		return errors.Join(allDeleted(ctx, s.lab, other), allDeleted(ctx, s.lab, stepped), cloud.empty(ctx, s.lab))
	}))
	s.recorder.Verdict(t)
}

func (s *stepper) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// machine creates a machine without a controller, in the namespace of its name, and returns its
// UID.
func (s *stepper) machine(name string) string {
	s.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelName: name}},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
	}
	created, err := s.lab.Machines.MachineV1alpha1().Machines(name).Create(s.ctx, m, metav1.CreateOptions{})
	s.must(err)
	return string(created.UID)
}

// release resumes all stopped calls.
func (s *stepper) release() {
	s.Helper()
	s.must(harness.Eventually(s.ctx, "the process releases its calls", func(ctx context.Context) error { // it may be about to start
		return s.lab.Release(ctx, harness.Fleet)
	}))
}

// restart kills the process, and starts the next one, which stops at its first call.
func (s *stepper) restart() {
	s.Helper()
	s.must(s.lab.Do(s.ctx, harness.Fleet, harness.Kill))
	s.must(s.lab.Do(s.ctx, harness.Fleet, harness.Start))
}

// step waits until the process stops, or the machine can be deleted, and takes the next action. It
// returns false when the machine is gone, and its class and Secret are free.
func (s *stepper) step() bool {
	s.Helper()
	var m *v1alpha1.Machine
	var free error
	what := ""
	s.must(harness.Eventually(s.ctx, "the process stops at a call", func(ctx context.Context) (err error) {
		if m, err = s.lab.Machines.MachineV1alpha1().Machines(stepped).Get(ctx, stepped, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			m, err = nil, nil
		}
		if err != nil || s.mayGo(m) {
			return err
		}
		if free = s.free(ctx); m == nil && free == nil {
			return nil
		}
		held, err := s.lab.Stopped(ctx, harness.Fleet)
		if err == nil && len(held) == 0 {
			err = fmt.Errorf("it stops at no call; the machine is %s; %w", story(m), free)
		}
		if err == nil {
			what = held[0]
		}
		return err
	}))
	switch {
	case what != "":
		s.stops(m, what)
	case m != nil:
		s.delete()
	}
	return m != nil || what != ""
}

// mayGo reports whether the machine is running, and can be deleted next.
func (s *stepper) mayGo(m *v1alpha1.Machine) bool {
	return m != nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && !s.isDeleted
}

// story describes the state of the machine.
func story(m *v1alpha1.Machine) string {
	if m == nil {
		return "gone"
	}
	return fmt.Sprintf("%s: %s", m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description)
}

// stops resumes a call, or kills the process at it.
func (s *stepper) stops(m *v1alpha1.Machine, what string) {
	s.Helper()
	call, _, _ := strings.Cut(what, " under ")
	if strings.HasPrefix(call, string(driver.OpDelete)) {
		s.isDrained()
	}
	key, counts := s.key(m, call)
	switch {
	case !counts || s.dies[key] == afterIt:
		s.must(s.lab.Resume(s.ctx, harness.Fleet, false))
		return
	case s.dies[key] == notYet:
		s.dies[key] = beforeIt
	default:
		s.dies[key] = afterIt
		s.answered(call)
	}
	if s.kills++; s.kills > mostKills {
		s.Fatalf("killed %d times, last at %s, and the life of the machine does not end", s.kills, key)
	}
	s.Logf("kill %d, %s it: %s", s.kills, s.dies[key], key)
	s.restart()
}

// answered resumes a call, with the requests that it sends, and waits for its answer.
func (s *stepper) answered(call string) {
	s.Helper()
	s.must(s.lab.Resume(s.ctx, harness.Fleet, true))
	s.must(harness.Eventually(s.ctx, call+" is answered", func(ctx context.Context) error {
		held, err := s.lab.Stopped(ctx, harness.Fleet)
		if err != nil || len(held) > 0 && strings.HasPrefix(held[0], "answer to "+call) {
			return err
		}
		if len(held) > 0 {
			err = s.lab.Resume(ctx, harness.Fleet, false)
		}
		return errors.Join(fmt.Errorf("stopped are %q", held), err)
	}))
}

// key distinguishes calls of the same name, by the state of the machine. counts reports whether the
// process is killed at it: not at calls for another machine or none.
func (s *stepper) key(m *v1alpha1.Machine, call string) (key string, counts bool) {
	for _, not := range []string{"/" + other, "/leases"} {
		if strings.Contains(call, not) {
			return "", false
		}
	}
	name := unspecific.ReplaceAllString(call, "")
	if testing.Short() && !slices.ContainsFunc(shortCalls, func(some string) bool { return strings.HasSuffix(name, some) }) {
		return "", false
	}
	if m == nil {
		return "gone: " + name, true
	}
	return fmt.Sprintf("%s %s: %s", m.ResourceVersion, m.Status.CurrentStatus.Phase, name), true
}

// delete starts pods on the machine's Node of which one at a time may be evicted, and deletes the
// machine.
func (s *stepper) delete() {
	s.Helper()
	s.isDeleted = true
	s.workload(2)
	s.must(s.lab.Machines.MachineV1alpha1().Machines(stepped).Delete(s.ctx, stepped, metav1.DeleteOptions{}))
}
