//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineinformers "github.com/machine-controller-fleet/machine-controller-fleet/client/informers/externalversions"
	machinelisters "github.com/machine-controller-fleet/machine-controller-fleet/client/listers/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// scene caches the current machines of a namespace.
type scene struct {
	machines machinelisters.MachineNamespaceLister
}

func observe(ctx context.Context, lab *harness.Lab, namespace string) (*scene, error) {
	factory := machineinformers.NewSharedInformerFactoryWithOptions(lab.Machines, 0, machineinformers.WithNamespace(namespace))
	machines := factory.Machine().V1alpha1().Machines()
	informer := machines.Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("the machines could not be listed")
	}
	return &scene{machines: machines.Lister().Machines(namespace)}, nil
}

// snapshot is a count of machines by the step of life that they are in.
type snapshot map[string]int

func (s snapshot) String() string {
	var parts []string
	for _, step := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s %d", step, s[step]))
	}
	return strings.Join(parts, ", ")
}

func (s *scene) snapshot() snapshot {
	all, err := s.machines.List(labels.Everything())
	if err != nil {
		return snapshot{err.Error(): 1} // a lister of a started informer does not fail
	}
	counts := snapshot{}
	for _, m := range all {
		counts[step(m)]++
	}
	return counts
}

// step names the step of its life that a machine is in.
func step(m *v1alpha1.Machine) string {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil && phase != v1alpha1.MachineTerminating:
		return "deleting: begun"
	case m.DeletionTimestamp != nil:
		return "deleting: terminating"
	case phase == v1alpha1.MachineRunning:
		return "running"
	case m.Spec.ProviderID == "":
		return "creating: no VM noted"
	case phase == "":
		return "creating: VM noted"
	default:
		return "creating: " + string(phase)
	}
}

func (s snapshot) count(prefix string) int {
	n := 0
	for step, count := range s {
		if strings.HasPrefix(step, prefix) {
			n += count
		}
	}
	return n
}

// busy waits until enough machines are in creation and in deletion.
func (s *scene) busy(ctx context.Context) error {
	return harness.Eventually(ctx, "enough machines are in creation and in deletion", func(context.Context) error {
		now := s.snapshot()
		if least := loadOf().least; now.count("creating") < least || now.count("deleting") < least {
			return fmt.Errorf("%s", now)
		}
		return nil
	})
}

// churn keeps machines in creation and in deletion: it creates MachineDeployments, and deletes the
// oldest ones.
type churn struct {
	lab       *harness.Lab
	scene     *scene
	namespace string

	cancel context.CancelFunc
	ended  chan struct{}
	once   sync.Once
	err    error
	live   []string
	serial int
	failed int // requests in a row
}

// load is how many machines the churn keeps.
type load struct {
	// least is how many machines are in creation, and in deletion, at every kill.
	least int
	// ahead is how many more are in creation and in deletion, so that there are enough while the fleet
	// is down.
	ahead int
	// running is how many may run at a time.
	running int
	// size is that of a MachineDeployment.
	size int
}

// loadOf returns the load of the tests: the long form keeps two cores busy, the short form a third
// of it, so that the faults take most of the time.
func loadOf() load {
	if testing.Short() {
		return load{least: 7, ahead: 10, running: 20, size: 3}
	}
	return load{least: 20, ahead: 30, running: 60, size: 10}
}

func startChurn(ctx context.Context, lab *harness.Lab, s *scene, namespace string) *churn {
	ctx, cancel := context.WithCancel(ctx)
	c := &churn{lab: lab, scene: s, namespace: namespace, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for c.err == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.note(ctx, c.step(ctx))
			}
		}
	}()
	return c
}

func (c *churn) step(ctx context.Context) error {
	api := c.lab.Machines.MachineV1alpha1().MachineDeployments(c.namespace)
	now, of := c.scene.snapshot(), loadOf()
	enough := of.least + of.ahead
	if now.count("creating") < enough && len(c.live)*of.size < of.running+enough {
		c.serial++
		name := fmt.Sprintf("load-%d", c.serial)
		c.live = append(c.live, name) // also when there is no answer: it may exist
		if _, err := api.Create(ctx, harness.Deployment(c.namespace, name, int32(of.size)), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if now.count("deleting") < enough && len(c.live) > enough/of.size {
		if err := api.Delete(ctx, c.live[0], metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		c.live = c.live[1:]
	}
	return nil
}

// mostFailures is how often in a row a request may fail: the API server is unavailable for a while
// in some runs.
const mostFailures = 600

// note records an error that persists.
func (c *churn) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.failed = 0
	case ctx.Err() == nil:
		if c.failed++; c.failed > mostFailures {
			c.err = err
		}
	}
}

// stop ends the load, and returns its error.
func (c *churn) stop() error {
	c.once.Do(c.cancel)
	<-c.ended
	return c.err
}

// blow is one kill: its time, its delay after the load was complete, and the machines and calls
// that it hit.
type blow struct {
	at    time.Time
	after time.Duration
	hit   snapshot
}

// report logs what each kill hit: the machines by step of life, and the calls in flight at the
// cloud.
func report(t *testing.T, lab *harness.Lab, blows []blow) {
	t.Helper()
	calls, err := lab.Cloud.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range blows {
		inFlight := snapshot{}
		for _, call := range calls {
			if call.Start.Before(b.at) && call.End.After(b.at) {
				inFlight[string(call.Operation)]++
			}
		}
		t.Logf("kill %2d, %4d ms after the load was complete: %s; calls in flight: %s", i+1, b.after.Milliseconds(), b.hit, inFlight)
	}
}

// noSecondVM returns an error if the call log shows a machine with a second VM.
func noSecondVM(lab *harness.Lab) error {
	calls, err := lab.Cloud.Calls()
	if err != nil {
		return err
	}
	created := map[string]int{}
	for _, call := range calls {
		if call.Operation == cloudapi.OpCreateInstance && call.Changed {
			if created[call.Token]++; created[call.Token] > 1 {
				return fmt.Errorf("machine %s got %d VMs", call.Machine, created[call.Token])
			}
		}
	}
	return nil
}
