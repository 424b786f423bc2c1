//go:build e2e

package attack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// largeSets are MachineSets of largeSize bytes with the largest selectors that are accepted; and
	// withoutController Machines that each of them is compared with, in as many slots as there are:
	// far below the documented quota.
	largeSets, largeSize, withoutController = 20, 500_000, 40
	// changes is how often each of these Machines changes.
	changes = 2
)

// largeObjects creates few and large objects, within the documented quota, with large selectors and
// large templates. Machines of another namespace are created meanwhile; scene.end checks that all
// slots were kept, how long renewals took, and the memory of the replicas.
func largeObjects(a *tenant) {
	namespace, _ := a.neighbour("")
	before := a.timeToRun(namespace, "before")
	none := metav1.LabelSelectorRequirement{Key: strings.Repeat("k", 50), Operator: metav1.LabelSelectorOpDoesNotExist}
	for i := range largeSets {
		a.set(fmt.Sprint("large-", i), 0, func(set *v1alpha1.MachineSet) {
			set.Spec.Template.Spec.NodeTemplateSpec.Annotations = map[string]string{"large": strings.Repeat("x", largeSize)}
			for range validation.MaxSelector - len(set.Spec.Selector.MatchLabels) {
				set.Spec.Selector.MatchExpressions = append(set.Spec.Selector.MatchExpressions, none)
			}
		})
	}
	for i := range withoutController {
		a.machine(fmt.Sprint("alone-", i), "no-class")
	}
	for round := range changes {
		for i := range withoutController {
			_, err := a.api.Machines(a.namespace).Patch(a.ctx, fmt.Sprint("alone-", i), types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round), metav1.PatchOptions{})
			a.must(err)
		}
		a.Logf("a machine of another namespace ran after %s, and after %s before", a.timeToRun(namespace, fmt.Sprint("during-", round)), before)
	}
}

// set creates a MachineSet of the namespace's class.
func (a *tenant) set(name string, n int32, change func(*v1alpha1.MachineSet)) {
	a.Helper()
	d := harness.Deployment(a.namespace, name, n)
	set := &v1alpha1.MachineSet{
		ObjectMeta: d.ObjectMeta, Spec: v1alpha1.MachineSetSpec{Replicas: n, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	change(set)
	_, err := a.api.MachineSets(a.namespace).Create(a.ctx, set, metav1.CreateOptions{})
	a.must(err)
}

// endThemselves are changes of a template whose machines do not live.
var endThemselves = map[string]func(*v1alpha1.MachineTemplateSpec){
	"trigger": func(t *v1alpha1.MachineTemplateSpec) {
		t.Annotations = map[string]string{v1alpha1.AnnotationTriggerDeletion: "true"}
	},
	"finalizer": func(t *v1alpha1.MachineTemplateSpec) { t.Finalizers = []string{"example.com/hold"} },
	"never": func(t *v1alpha1.MachineTemplateSpec) {
		t.Spec.Class.Name = "working" // whose VMs do not join
		t.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: 1}}
	},
	"health": func(t *v1alpha1.MachineTemplateSpec) {
		t.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 1}}
	},
}

// What machines that end themselves may cost: firstDelay is the time between two of them in a row,
// which doubles each time.
const (
	replicasOfEach     = 2
	firstDelay         = 10 * time.Second
	requestsForMachine = 40
	eventsForMachine   = 10
)

// templatesThatEndThemselves creates MachineSets whose machines end as soon as they exist. Until
// all attacks have ended, few machines are created, and what they cost is bounded.
func templatesThatEndThemselves(a *tenant) {
	a.class("working", a.cloud.endpoint("working"))
	began := time.Now()
	for name, change := range endThemselves {
		a.set(a.named(name), replicasOfEach, func(set *v1alpha1.MachineSet) { change(&set.Spec.Template) })
	}
	a.eventually("the creation of machines that never join is delayed", func(ctx context.Context) error {
		set, err := a.api.MachineSets(a.namespace).Get(ctx, a.named("never"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range set.Status.Conditions {
			if c.Type == v1alpha1.MachineSetCreationDelayed && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", set.Status.Conditions)
	})
	a.atEnd(func(t *testing.T) {
		t.Helper()
		requests, err := a.lab.Requests(a.position)
		if err != nil {
			t.Fatal(err)
		}
		events, err := a.lab.Control.EventsV1().Events(a.namespace).List(a.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		count, machines, emitted := 0, 0, len(events.Items)
		for _, r := range requests {
			if r.IsFleet() && r.Namespace == a.namespace {
				count++
				if r.Resource == "machines" && r.Verb == "create" {
					machines++
				}
			}
		}
		for _, e := range events.Items {
			if e.Series != nil {
				emitted += int(e.Series.Count)
			}
		}
		took, rounds := time.Since(began), 2 // the first one, and one that the clocks of both may differ by
		for passed, delay := time.Duration(0), firstDelay; passed < took; delay *= 2 {
			passed += delay
			rounds++
		}
		most := replicasOfEach * (len(endThemselves) - 1 + rounds) // the others live
		t.Logf("machines that end themselves: in %s %d machines, %d requests, %d Events", took.Round(time.Second), machines, count, emitted)
		if machines > most || count > requestsForMachine*most || emitted > eventsForMachine*most {
			t.Errorf("want at most %d machines, %d requests and %d Events", most, requestsForMachine*most, eventsForMachine*most)
		}
	})
}
