//go:build e2e

package monitoring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	replicas = 3
	slots    = 256
	poll     = 500 * time.Millisecond
)

// scene is a lab with a Prometheus that has the chart's rules.
type scene struct {
	*testing.T
	ctx  context.Context //nolint:containedctx // it ends with the test, and so does the scene
	lab  *harness.Lab
	prom *harness.Prometheus
	// alerts are the names of all alerts of the chart.
	alerts map[string]bool
}

// newScene starts a lab with options, whose fleet has flags, and a Prometheus when the fleet holds
// its slots.
func newScene(t *testing.T, o harness.Options, flags ...string) *scene {
	t.Helper()
	o.Replicas, o.Clusters, o.CloudsimFlags, o.FleetFlags = replicas, 1, "--boot-time=1s", strings.Join(flags, " ")
	ctx, lab := harness.Begin(t, o, nil)
	rules := chartRules(ctx, t)
	s := &scene{T: t, ctx: ctx, lab: lab, alerts: rules.alerts()}
	s.must(lab.WaitHeld(ctx, slots))
	s.prom = harness.StartPrometheus(ctx, t, lab, interval, rules.faster(t).write(t))
	s.eventually("Prometheus scrapes all replicas", func(ctx context.Context) error {
		up, _, err := s.prom.Value(ctx, `sum(up{job="`+harness.FleetName+`"})`) // drivers are scraped, too
		if err == nil && up != replicas {
			err = fmt.Errorf("it scrapes %g", up)
		}
		return err
	})
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// of is the scene for a subtest.
func (s *scene) of(t *testing.T) *scene {
	t.Helper()
	other := *s
	other.T = t
	return &other
}

func (s *scene) eventually(what string, check func(ctx context.Context) error) {
	s.Helper()
	s.must(harness.EventuallyEvery(s.ctx, poll, what, check))
}

// firing returns the alerts that fire, and once more with the object or provider that one is about.
func (s *scene) firing(ctx context.Context) (map[string]bool, error) {
	all, err := s.prom.Query(ctx, `count by (alertname, name, provider) (ALERTS{alertstate="firing"})`)
	names := map[string]bool{}
	for _, series := range all {
		alert := series.Labels["alertname"]
		names[alert] = true
		names[alert+" "+series.Labels["name"]+series.Labels["provider"]] = true
	}
	return names, err
}

// fired returns the alerts that have fired at any time.
func (s *scene) fired() []string {
	s.Helper()
	all, err := s.prom.QueryAll(s.ctx, `ALERTS{alertstate="firing"}`, interval)
	s.must(err)
	names := map[string]bool{}
	for _, series := range all {
		names[series.Labels["alertname"]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// rest waits for some time, in which Prometheus scrapes.
func (s *scene) rest(d time.Duration) {
	s.Helper()
	end := time.Now().Add(d)
	s.eventually("the time is over", func(context.Context) error {
		if left := time.Until(end); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

// deploy creates a MachineDeployment.
func (s *scene) deploy(namespace, name string, machines int32, change ...func(*v1alpha1.MachineDeployment)) {
	s.Helper()
	d := harness.Deployment(namespace, name, machines)
	for _, f := range change {
		f(d)
	}
	_, err := s.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(s.ctx, d, metav1.CreateOptions{})
	s.must(err)
}

// patch patches a MachineDeployment.
func (s *scene) patch(namespace, name, patch string) {
	s.Helper()
	_, err := s.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Patch(s.ctx, name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	s.must(err)
}

// roll changes the template of a MachineDeployment, and waits until all machines have it and the
// old ones are gone.
func (s *scene) roll(namespace, name, to string) {
	s.Helper()
	s.patch(namespace, name, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"template":%q}}}}}`, to))
	s.eventually("the rollout is complete", func(ctx context.Context) error {
		d, err := s.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is, want := d.Status, d.Spec.Replicas
		if is.ObservedGeneration < d.Generation || is.UpdatedReplicas != want || is.Replicas != want || is.AvailableReplicas != want {
			return fmt.Errorf("status: %+v", is)
		}
		return s.noMoreMachines(ctx, namespace, int(want))
	})
}

// noMoreMachines returns an error if a namespace has more machines, with those that are being
// deleted.
func (s *scene) noMoreMachines(ctx context.Context, namespace string, than int) error {
	list, err := s.lab.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	if len(list.Items) > than {
		return fmt.Errorf("there are %d machines, want %d", len(list.Items), than)
	}
	return nil
}

// orphan creates a VM that belongs to no machine of the namespace.
func (s *scene) orphan(namespace, name string) {
	s.Helper()
	system, err := s.lab.Control.CoreV1().Namespaces().Get(s.ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	s.must(err)
	_, err = s.lab.Cloud.Create(s.ctx, cloudapi.CreateInstanceRequest{Name: name, ClientToken: name, Tags: map[string]string{
		simulated.TagCluster: namespace, simulated.TagMachine: name, simulated.TagMachineUID: "0000-" + name,
		simulated.TagControlCluster: string(system.UID),
	}})
	s.must(err)
}

// roles returns the leader and the other replicas.
func (s *scene) roles() (leader string, followers []string) {
	s.Helper()
	s.eventually("there is a leader", func(ctx context.Context) error {
		lease, err := s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, harness.FleetName+"-leader", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("there is none")
		}
		leader, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		return nil
	})
	all, err := s.lab.Replicas(s.ctx)
	s.must(err)
	return leader, slices.DeleteFunc(all, func(replica string) bool { return replica == leader })
}
