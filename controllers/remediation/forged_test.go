package remediation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
)

// withSet runs f with a MachineDeployment and its set of six machines, none of which is in the View
// yet.
func withSet(t *testing.T, f func(b *bench, s *v1alpha1.MachineSet)) {
	t.Helper()
	d := deployment()
	s := set("s", d, 6)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.Breakers().Receive(nil, []string{"r"})
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		f(b, s)
	})
}

// expectOpen reports an error unless no machine has a disruption, and the condition has the reason.
func (b *bench) expectOpen() {
	b.Helper()
	d := b.deployment()
	if got := disruptions(b.T, d); len(got) > 0 || len(d.Status.Conditions) != 1 {
		b.Errorf("disruptions for %v, conditions %+v", got, d.Status.Conditions)
	}
}

// A client that may write Machines in one namespace can report them as Running, on any Node, in any
// zone. The circuit breaker of a zone that is not Ready opens all the same.
func TestForgedMachinesDoNotKeepTheBreakerClosed(t *testing.T) {
	for name, node := range map[string]func(i int) string{
		"they name no Node":                 func(int) string { return "" },
		"they name Nodes that do not exist": func(i int) string { return fmt.Sprint("invented-", i) },
		"they name Nodes of other machines": func(i int) string { return fmt.Sprint("s-", i%6) },
	} {
		t.Run(name, func(t *testing.T) {
			withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
				for i := range 6 {
					b.join(machine(s, i, v1alpha1.MachineUnknown, time.Now()))
				}
				theirs := class() // also in zone z1
				theirs.Namespace = "tenant"
				b.feed(theirs)
				for i := range 100 {
					forged := machine(set("forged", nil, 0), i, v1alpha1.MachineRunning, time.Now())
					forged.Namespace, forged.OwnerReferences = "tenant", nil
					forged.Labels[v1alpha1.LabelNode] = node(i)
					b.feed(forged)
				}
				b.wait(time.Hour)
				b.expectOpen()
			})
		})
	}
}

// Nodes are deleted with their VMs if a cloud has lost these. Their machines are not Ready, and
// still in the zone of their class.
func TestMachinesWithDeletedNodesAreNotReady(t *testing.T) {
	withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
		for i := range 6 {
			b.feed(machine(s, i, v1alpha1.MachineUnknown, time.Now()))
		}
		b.wait(time.Hour)
		if text, _ := b.Breakers().Report(); text != `{"counts":{"/z1":{"0":[0,6]}},"unready":{"/z1":{"n":{"0":6}}}}` {
			t.Errorf("reported %s", text)
		}
		b.expectOpen()
	})
}

// A tenant can write open circuit breakers to the status of its roots. The fleet then reconciles
// the roots of that tenant, and no others.
func TestBreakersEnqueueTheirRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.end()
		var looked []string
		b.breakers.changed = func(namespace string) { looked = append(looked, namespace) }
		b.breakers.count(t.Context())
		if text, ok := b.breakers.Report(); ok {
			t.Errorf("reported %q before the number of slots is known", text)
		}
		b.breakers.Receive(nil, []string{"r"})
		b.breakers.count(t.Context())
		looked = nil
		m := machine(set("s", nil, 1), 0, v1alpha1.MachineRunning, time.Now())
		below := func(zone string) {
			b.breakers.restore(b.cfg.Limits.Thresholds,
				v1alpha1.ReasonZoneNotReady, []disruption.Member{{Machine: m, Scope: disruption.Scope{Zone: zone}}})
		}
		if below(""); len(looked) > 0 {
			t.Errorf("the condition of a zone opens the circuit breaker of a cluster, for roots of %q", looked)
		}
		below("z1")
		if b.recounts(func() { below("z1") }) {
			t.Error("what is known already is counted again")
		}
		if !slices.Equal(looked, []string{"n"}) {
			t.Errorf("a forged open breaker enqueues roots of %q, want n", looked)
		}
		b.breakers.count(t.Context())
		b.wait(6 * time.Minute)
		b.breakers.count(t.Context())
		if !slices.Equal(looked, []string{"n", "n"}) {
			t.Errorf("its end enqueues roots of %q, want n once more", looked)
		}
	})
}

func TestConcerned(t *testing.T) {
	standing := func(complete bool, scopes ...disruption.Scope) disruption.Snapshot {
		s := disruption.Snapshot{Complete: complete, Open: map[disruption.Scope]disruption.Count{}}
		for _, scope := range scopes {
			s.Open[scope] = disruption.Count{}
		}
		return s
	}
	own := disruption.Thresholds{NotReady: 1}
	flags := func(is disruption.Snapshot) disruption.Snapshots {
		return disruption.Snapshots{Of: map[disruption.Thresholds]disruption.InUse{{}: {Snapshot: is}}}
	}
	with := func(is disruption.Snapshot, namespaces ...string) disruption.Snapshots {
		s := flags(standing(true))
		used := disruption.InUse{Snapshot: is, Namespaces: map[string]bool{}}
		for _, namespace := range namespaces {
			used.Namespaces[namespace] = true
		}
		s.Of[own] = used
		return s
	}
	all, one, other := disruption.Scope{Zone: "z"}, disruption.Scope{Zone: "z", Namespace: "n"}, disruption.Scope{Namespace: "m"}
	for name, tc := range map[string]struct {
		before, after disruption.Snapshots
		want          []string
	}{
		"no change":                        {flags(standing(true, one)), flags(standing(true, one)), nil},
		"all slots are counted":            {flags(standing(false, one)), flags(standing(true, one)), []string{""}},
		"a breaker opens":                  {flags(standing(true)), flags(standing(true, all, one)), []string{""}},
		"a breaker closes":                 {flags(standing(true, all)), flags(standing(true, one)), []string{""}},
		"one opens, another closes":        {flags(standing(true, one)), flags(standing(true, other)), []string{"m", "n"}},
		"one opens in one namespace":       {flags(standing(true, one)), flags(standing(true, one, other)), []string{"m"}},
		"thresholds begin to be used":      {flags(standing(true)), with(standing(true), "m", "n"), []string{"m", "n"}},
		"thresholds are not used any more": {with(standing(true), "m"), flags(standing(true)), []string{"m"}},
		"one opens where they are used":    {with(standing(true), "m", "n"), with(standing(true, all), "m", "n"), []string{"m", "n"}},
		"one opens in one of these":        {with(standing(true), "m", "n"), with(standing(true, one), "m", "n"), []string{"n"}},
		"a namespace begins to use them":   {with(standing(true, all), "m"), with(standing(true, all), "m", "n"), nil},
	} {
		if got := concerned(tc.before, tc.after); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// An annotation that another client has written must not cause unlimited replacements.
func TestInvalidDisruptionsAreNotOverwritten(t *testing.T) {
	d := deployment()
	d.Annotations = map[string]string{v1alpha1.AnnotationDisruptions: "nonsense"}
	s := set("s", d, 1)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, d)
		defer b.end()
		b.Breakers().Receive(nil, []string{"r"})
		for _, obj := range []any{class(), d, s, machine(s, 0, v1alpha1.MachineUnknown, time.Now().Add(-time.Hour))} {
			b.feed(obj)
		}
		if _, err := b.deployments.reconcile(t.Context(), types.NamespacedName{Namespace: "n", Name: "d"}); err == nil ||
			!strings.Contains(err.Error(), "remove the annotation") {
			t.Errorf("want an error that says what to do, got %v", err)
		}
		if len(b.api.Actions()) > 0 {
			t.Errorf("requests %v", b.api.Actions())
		}
	})
}
