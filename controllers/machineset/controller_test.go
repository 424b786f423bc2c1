package machineset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// put creates a machine without an owner, with the labels of the set's machines.
func (b *bench) put(name string, changes ...func(*v1alpha1.Machine)) {
	b.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "n", Labels: map[string]string{v1alpha1.LabelName: "set"}, Finalizers: []string{v1alpha1.FinalizerName},
	}}
	for _, change := range changes {
		change(m)
	}
	apiserver.Add(b.server, m)
}

func (b *bench) machine(name string) *v1alpha1.Machine {
	b.Helper()
	m := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", name)
	if m == nil {
		b.Fatalf("there is no machine %s", name)
	}
	return m
}

func (b *bench) delete(name string) {
	b.Helper()
	b.server.Delete("machines", "n", name)
}

// If its class exists, a machine is created with the note that its VM may have been requested: its
// controller need not write it.
func TestMachinesAreCreatedWithTheCreateNote(t *testing.T) {
	for _, isThere := range []bool{true, false} {
		onBench(t, func(b *bench) {
			if isThere {
				class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
				apiserver.Add(b.server, class)
			}
			b.create(2)
			for _, m := range b.machines() {
				if noted := m.Annotations[v1alpha1.AnnotationCreateSent] != ""; noted != isThere {
					b.Errorf("the class exists: %t, and the create note: %t", isThere, noted)
				}
			}
		})
	}
}

// Metadata of a template that belongs to controllers would delete each machine, keep it from being
// deleted, or let it begin in the middle of its life.
func TestMachinesGetNoMetadataOfControllersFromTheirTemplate(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(1, func(set *v1alpha1.MachineSet) {
			set.Spec.Template.Finalizers = []string{"example.com/never-removed"}
			set.Spec.Template.Labels = map[string]string{
				v1alpha1.LabelName: "set", v1alpha1.LabelNode: "other", v1alpha1.LabelUpdateResult: "successful", v1alpha1.LabelSlot: "8",
			}
			set.Spec.Template.Annotations = map[string]string{
				v1alpha1.AnnotationTriggerDeletion: "true", v1alpha1.AnnotationPriority: "1",
				v1alpha1.AnnotationMarkedForDeletionTime: "2026-01-02T03:04:05Z", v1alpha1.AnnotationOrdinal: "7", v1alpha1.AnnotationSetAside: "{}",
				v1alpha1.AnnotationReleasedBy: "x", v1alpha1.AnnotationMachineConfig: "worker-1", "a": "b",
			}
		})
		m := b.machines()[0]
		if want := map[string]string{v1alpha1.LabelName: "set", v1alpha1.LabelSlot: "7"}; !maps.Equal(m.Labels, want) {
			t.Errorf("labels %v, want %v", m.Labels, want)
		}
		if want := map[string]string{
			v1alpha1.AnnotationPriority: "3", v1alpha1.AnnotationOrdinal: "0", v1alpha1.AnnotationMachineConfig: "worker-1", "a": "b",
		}; !maps.Equal(m.Annotations, want) {
			t.Errorf("annotations %v, want %v", m.Annotations, want)
		}
		if want := []string{v1alpha1.FinalizerName}; !slices.Equal(m.Finalizers, want) {
			t.Errorf("finalizers %v, want %v", m.Finalizers, want)
		}
		if set := b.set(); set.Status.FullyLabeledReplicas != 1 || len(b.machines()) != 1 {
			t.Errorf("%d fully labeled of %d machines, want 1 of 1", set.Status.FullyLabeledReplicas, len(b.machines()))
		}
	})
}

// A set adopts what Kubernetes' sets adopt: all that match its selector, has no controller, and
// stays.
func TestAdoption(t *testing.T) {
	labelled := func(value string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelName] = value }
	}
	owned := func(controller bool) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "other", UID: "other", Controller: &controller}}
		}
	}
	for _, tc := range []struct {
		name    string
		change  func(*v1alpha1.Machine)
		ending  bool
		adopted bool
	}{
		{"an orphan", func(*v1alpha1.Machine) {}, false, true},
		{"one with an owner that does not control it", owned(false), false, true},
		{"owned by another controller", owned(true), false, false},
		{"with other labels", labelled("other"), false, false},
		{"being deleted", func(*v1alpha1.Machine) {}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.put("m", tc.change)
				if tc.ending {
					b.delete("m")
				}
				b.create(2)
				m, set := b.machine("m"), b.set()
				if got := metav1.IsControlledBy(m, set); got != tc.adopted {
					t.Errorf("adopted: %v, want %v", got, tc.adopted)
				}
				if tc.adopted && m.OwnerReferences[0].UID != set.UID {
					t.Errorf("owners %v: the cluster-autoscaler reads the first", m.OwnerReferences)
				}
				want := map[bool]int{true: 2, false: 3}[tc.adopted]
				if got := len(b.machines()); got != want || set.Status.Replicas != 2 {
					t.Errorf("%d machines, want %d; the set counts %d", got, want, set.Status.Replicas)
				}
			})
		})
	}
}

// An orphan that is not any more as the cache shows it is adopted as it is, and none is created in
// its place.
func TestAnOrphanThatHasChangedIsAdopted(t *testing.T) {
	var view *objectcache.View
	onBench(t, func(b *bench) {
		b.put("m")
		shown := b.machine("m")
		b.patchMachine("m", `{"metadata":{"labels":{"changed":"true"}}}`)
		view.Machines.Remove(objectcache.Key(shown), "")
		view.Machines.Apply(shown, false)
		b.create(1)
		if got := len(b.machines()); got != 1 || !metav1.IsControlledBy(b.machine("m"), b.set()) {
			t.Errorf("there are %d machines; the owners of the first are %v", got, b.machine("m").OwnerReferences)
		}
	}, func(cfg *Config) { view = cfg.View })
}

// Adopting more machines than desired leads to the deletion of surplus ones.
func TestAdoptionOfTooMany(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(2)
		for i := range 3 {
			b.put(fmt.Sprint("m", i))
		}
		b.pass(time.Minute)
		standing := 0
		for _, m := range b.machines() {
			if !metav1.IsControlledBy(m, b.set()) {
				t.Errorf("%s was not adopted", m.Name)
			}
			if m.DeletionTimestamp == nil {
				standing++
			}
		}
		if standing != 2 {
			t.Errorf("%d machines stand", standing)
		}
	})
}

// A set that is being deleted adopts nothing.
func TestAnEndingSetAdoptsNothing(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(1)
		b.server.Delete("machinesets", "n", "set")
		b.put("m")
		b.pass(time.Minute)
		if owner := metav1.GetControllerOf(b.machine("m")); owner != nil {
			t.Errorf("it was adopted by %s", owner.Name)
		}
	})
}

// A machine whose labels do not match any more is released, with its slot, and another one is
// created instead; when they match again it is adopted again.
func TestRelease(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(2)
		m := b.machines()[0]
		b.patchMachine(m.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"quarantine"}}}`, v1alpha1.LabelName))
		b.pass(time.Minute)
		m = b.machine(m.Name)
		if m.DeletionTimestamp != nil || len(m.OwnerReferences) > 0 || m.Labels[v1alpha1.LabelSlot] != "" {
			t.Errorf("it was not released: %+v", m.ObjectMeta)
		}
		if got := len(b.machines()); got != 3 || b.set().Status.Replicas != 2 {
			t.Errorf("%d machines, want 3; the set counts %d", got, b.set().Status.Replicas)
		}
		if m.Annotations[v1alpha1.AnnotationReleasedBy] != string(b.set().UID) {
			t.Errorf("it does not have the set that has released it: %v", m.Annotations)
		}
		is := machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetMachinesReleased)
		if is == nil || !strings.Contains(is.Message, m.Name) {
			t.Errorf("condition %+v, want one that names the machine", is)
		}
		b.patchMachine(m.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"set"}}}`, v1alpha1.LabelName))
		b.pass(time.Minute)
		if m = b.machine(m.Name); !metav1.IsControlledBy(m, b.set()) || m.Annotations[v1alpha1.AnnotationReleasedBy] != "" {
			t.Error("it was not adopted again")
		}
		b.pass(time.Hour)
		if is := machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetMachinesReleased); is != nil {
			t.Errorf("after an hour the set has the condition %+v", is)
		}
	})
}

// Changes of nodeTemplate, configuration and class kind reach the machines that are there, in one
// write each, and without a new machine; those that have failed stay as they are.
func TestHotSync(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(10)
		failed := b.machines()[3].Name
		b.patchMachine(failed, `{"status":{"currentStatus":{"phase":"Failed"}}}`, "status")
		b.pass(time.Minute)
		conflicts := 0
		b.server.Fault(func(r apiserver.Request) error { // another client writes at the same time
			if r.Resource == "machines" && r.Verb == "patch" && conflicts < 3 {
				conflicts++
				return errors.New("not now")
			}
			return nil
		})
		before := b.server.Writes()
		b.patch(
			`{"spec":{"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"pool":"b"}}},"drainTimeout":"5m","class":{"kind":"OtherClass"}}}}}`,
		)
		b.pass(5 * time.Minute)
		machines := b.machines()
		if len(machines) != 10 {
			t.Errorf("there are %d machines", len(machines))
		}
		for _, m := range machines {
			is := m.Spec.NodeTemplateSpec.Labels["pool"] == "b" && m.Spec.Class.Kind == "OtherClass" &&
				m.Spec.MachineConfiguration != nil && m.Spec.MachineDrainTimeout.Duration == 5*time.Minute
			if is != (m.Name != failed) {
				t.Errorf("%s: %+v", m.Name, m.Spec)
			}
		}
		// The user's, nine machines, three that were refused, and the status for the generation.
		if got := b.server.Writes() - before; got > 1+9+3+1 {
			t.Errorf("%d writes", got)
		}
	})
}

// The meaning of minReadySeconds is set by the flag, or by the root, which has precedence.
func TestMinReadySecondsByFlagAndRoot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flag  bool
		value string
		count bool
	}{
		{"as Machine Controller Manager has it", false, "", false},
		{"flag", true, "", true},
		{"annotation", false, "true", true},
		{"annotation against it", true, "false", false},
		{"annotation that means nothing", true, "yes, please", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(1, func(set *v1alpha1.MachineSet) {
					set.Spec.MinReadySeconds = 500
					set.Annotations = map[string]string{v1alpha1.AnnotationCountMinReady: tc.value}
				})
				b.runs(b.machines()[0].Name)
				b.pass(499 * time.Second)
				if got := b.set().Status.AvailableReplicas == 0; got != tc.count {
					t.Errorf("minReadySeconds counts: %v, want %v", got, tc.count)
				}
				b.pass(2 * time.Second) // and the status is half a second late
				if status := b.set().Status; status.AvailableReplicas != 1 || status.ReadyReplicas != 1 {
					t.Errorf("after 501 s: %+v", status)
				}
			}, func(cfg *Config) { cfg.CountMinReady = tc.flag })
		})
	}
}

// runs has a machine begin to run.
func (b *bench) runs(name string) {
	b.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	b.patchMachine(name, fmt.Sprintf(`{"status":{"currentStatus":{"phase":"Running","lastUpdateTime":%q}}}`, now), "status")
}

// The annotation of the MachineDeployment applies to all of its sets, at once.
func TestMinReadySecondsOfADeployment(t *testing.T) {
	onBench(t, func(b *bench) {
		d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: "d-uid"}}
		apiserver.Add(b.server, d)
		b.create(1, func(set *v1alpha1.MachineSet) {
			set.Spec.MinReadySeconds = 500
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))}
		})
		b.runs(b.machines()[0].Name)
		var heard []int32
		for _, value := range []string{"null", `"true"`, `"false"`, `"true"`, "null"} {
			b.server.Merge("machinedeployments", "n", "d",
				fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationCountMinReady, value))
			b.pass(time.Second)
			heard = append(heard, b.set().Status.AvailableReplicas)
		}
		if want := []int32{1, 0, 1, 0, 1}; !slices.Equal(heard, want) {
			t.Errorf("available: %v, want %v", heard, want)
		}
	})
}
