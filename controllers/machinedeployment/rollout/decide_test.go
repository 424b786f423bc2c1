package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func deployment(replicas int32) *v1alpha1.MachineDeployment {
	labels := map[string]string{v1alpha1.LabelName: "d"}
	return &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "d", Namespace: "n", UID: "d-uid", Generation: 1, CreationTimestamp: metav1.NewTime(born),
			Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
			Annotations: map[string]string{v1alpha1.AnnotationRevision: "1", v1alpha1.AnnotationStrategy: "RollingUpdate", "mine": "yes"},
		},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}
}

// worldOf is a world in which each set has the machines that its status counts.
func worldOf(d *v1alpha1.MachineDeployment, sets ...*v1alpha1.MachineSet) World {
	w := World{
		Now: born, Deployment: d, Owned: sets, Confirmed: true, KeepFromAutoscaler: true, Machines: map[types.UID][]*v1alpha1.Machine{},
		Done: Done{Moved: map[types.UID]bool{}, Deleted: map[types.UID]bool{}},
	}
	for _, set := range sets {
		for i := range set.Status.Replicas {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set.UID, i)}}
			m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
			if i < set.Status.ReadyReplicas {
				m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
			}
			w.Machines[set.UID] = append(w.Machines[set.UID], m)
		}
	}
	return w
}

// setOf returns the set of the deployment's template, as it is after its creation.
func setOf(d *v1alpha1.MachineDeployment, uid types.UID, replicas, running int32) *v1alpha1.MachineSet {
	w := worldOf(d)
	s := &sets{limits: limitsOf(d), w: w, d: d, newSet: &tally{set: newMachineSet(w.Deployment), size: replicas}}
	set := s.newSet.set
	setChanges{&sizing{sets: s}}.complement(s.newSet, set)
	set.UID = uid
	set.Spec.Replicas = replicas
	set.Status = v1alpha1.MachineSetStatus{Replicas: replicas, ReadyReplicas: running, AvailableReplicas: running}
	return set
}

// deleted is a world whose only set, of the deployment's template, is being deleted.
func deleted(live *Live, finalizers ...string) World {
	w := worldOf(deployment(3), setOf(deployment(3), "s", 3, 3))
	w.Deployment.Annotations[v1alpha1.AnnotationRevision] = "2"
	w.LiveSets, w.Live = map[types.UID]bool{"s": true}, live
	w.Owned[0].DeletionTimestamp, w.Owned[0].Finalizers = &metav1.Time{Time: born}, finalizers
	return w
}

// older is a set of another template.
func older(uid types.UID, age time.Duration, replicas int32) *v1alpha1.MachineSet {
	d := deployment(replicas)
	d.Spec.Template.Spec.Class.Name = "class-of-" + string(uid)
	set := setOf(d, uid, replicas, replicas)
	set.CreationTimestamp = metav1.NewTime(born.Add(-age))
	return set
}

// reported returns the status, reason and message of a condition; "" when there is none.
func reported(s v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType) string {
	if c := machinefacts.MachineDeploymentCondition(&s, t); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

func TestDecide(t *testing.T) {
	d, rolledBack := deployment(3), deployment(3)
	rolledBack.Spec.RollbackTo = &v1alpha1.RollbackConfig{}
	now := metav1.NewTime(born)
	one := &Live{Machines: map[types.UID][]*metav1.ObjectMeta{"s": {{Name: "s-0"}}}}
	for _, tc := range []struct {
		name        string
		world       World
		want        Action
		progressing string
		valid       string
	}{
		{name: "no finalizer", world: worldOf(func() *v1alpha1.MachineDeployment {
			d := deployment(3)
			d.Finalizers = nil
			return d
		}()), want: Save},
		{name: "no set, the cache may be late", world: worldOf(d), want: ListSets},
		{name: "no set, the cache is late", world: func() World {
			w := worldOf(d)
			w.LiveSets = map[types.UID]bool{"s": true}
			return w
		}(), want: Rest},
		{name: "no set", world: func() World {
			w := worldOf(d)
			w.LiveSets = map[types.UID]bool{}
			return w
		}(), want: Create},
		{name: "the set could not be created", world: func() World {
			w := worldOf(d)
			w.Done.CreateError = "no"
			return w
		}(), want: Rest, progressing: "False/MachineSetCreateError"},
		{name: "the name is taken", world: func() World {
			w := worldOf(d)
			w.Done.Collided = true
			return w
		}(), want: Save},
		{name: "in no slot", world: func() World {
			d := deployment(3)
			d.Labels = nil
			return worldOf(d)
		}(), want: Rest},
		{name: "set too small, the cache may not show all", world: func() World {
			w := worldOf(d, setOf(d, "s", 2, 2))
			w.Confirmed = false
			return w
		}(), want: ListSets},
		{name: "set too small", world: worldOf(d, setOf(d, "s", 2, 2)), want: Update},
		{name: "set too small, another is not shown", world: func() World {
			w := worldOf(d, setOf(d, "s", 2, 2))
			w.LiveSets = map[types.UID]bool{w.Owned[0].UID: true, "in another slot": true}
			return w
		}(), want: Rest},
		{name: "to be rolled back, the cache may not show all sets", world: func() World {
			w := worldOf(rolledBack, setOf(d, "s", 3, 3))
			w.Confirmed = false
			return w
		}(), want: ListSets},
		{name: "to be rolled back, another set is not shown", world: func() World {
			w := worldOf(rolledBack, setOf(d, "s", 3, 3))
			w.LiveSets = map[types.UID]bool{"s": true, "created a moment ago": true}
			return w
		}(), want: Rest},
		{name: "to be rolled back", world: worldOf(rolledBack, setOf(d, "s", 3, 3)), want: Save},
		{name: "new, or with another selector", world: func() World {
			w := worldOf(d, setOf(d, "s", 3, 3))
			w.MustListOrphans = true
			return w
		}(), want: ListSets},
		{name: "machines on their way", world: worldOf(d, setOf(d, "s", 3, 1)), want: Rest, progressing: "True/NewMachineSetCreated"},
		{name: "complete", world: worldOf(d, setOf(d, "s", 3, 3)), want: Rest, progressing: "True/NewMachineSetAvailable"},
		{name: "template changed", world: worldOf(d, older("o", time.Hour, 3), setOf(d, "s", 0, 0)), want: Save}, // revision 2
		{name: "empty selector", world: worldOf(func() *v1alpha1.MachineDeployment {
			d := deployment(3)
			d.Spec.Selector = &metav1.LabelSelector{}
			return d
		}()), want: Rest, valid: "False/SelectorMatchesEverything"},
		{name: "no selector", world: worldOf(func() *v1alpha1.MachineDeployment {
			d := deployment(3)
			d.Spec.Selector = nil
			return d
		}()), want: Rest, valid: "False/SelectorMatchesNothing"},
		{name: "orphan", world: func() World {
			w := worldOf(d)
			w.Orphans = []*v1alpha1.MachineSet{setOf(d, "s", 3, 3)}
			return w
		}(), want: Adopt},
		{name: "unrelated", world: func() World {
			set := setOf(d, "s", 3, 3)
			set.Labels = map[string]string{"other": "label"}
			return worldOf(d, set)
		}(), want: Release},
		{name: "deletion, sets left", world: func() World {
			w := worldOf(deployment(3), setOf(d, "s", 3, 3))
			w.Deployment.DeletionTimestamp = &now
			return w
		}(), want: Delete},
		{name: "set deleted, its machines have to stay", world: deleted(one, metav1.FinalizerOrphanDependents), want: Rest},
		{name: "set deleted", world: deleted(nil, v1alpha1.FinalizerName), want: ReadLive},
		{name: "set deleted with its machines", world: deleted(one, v1alpha1.FinalizerName), want: Create},
		{name: "set deleted, its machines were orphaned", world: deleted(&Live{}, v1alpha1.FinalizerName), want: Rest},
		{name: "set gone, its machines were orphaned", world: deleted(&Live{}), want: Rest},
		{name: "set of another template deleted", world: func() World {
			w := deleted(nil, v1alpha1.FinalizerName)
			w.Deployment.Spec.Template.Spec.Class.Name = "next"
			return w
		}(), want: Create},
		{name: "set deleted without machines, and kept", world: deleted(nil, v1alpha1.FinalizerName, "example.com/kept"), want: Create},
		{name: "no VM of the class of the new set can be created", world: func() World {
			fresh := setOf(d, "s", 3, 0)
			fresh.Status.Conditions = []v1alpha1.MachineSetCondition{
				{Type: v1alpha1.MachineSetValid, Status: "False", Reason: v1alpha1.ReasonInvalidClass},
			}
			return worldOf(d, fresh)
		}(), want: Rest, valid: "False/InvalidClass"},
		{name: "nothing to do, and a remark", world: func() World {
			w := worldOf(deployment(3), setOf(d, "s", 3, 3))
			w.Deployment.Annotations[v1alpha1.AnnotationRevision] = "1"
			w.Deployment.Spec.ProgressDeadlineSeconds = new(int32(-1))
			return w
		}(), want: Rest, valid: "True/Remarks"},
		{
			name: "the target cluster is not available", world: withoutTarget(worldOf(d, setOf(d, "s", 3, 3)), "no Secret", false), want: Rest,
			valid: "False/TargetUnavailable",
		},
		// and then creates it
		{name: "the target cluster is not available, and there is no set", world: withoutTarget(worldOf(d), "no Secret", false), want: ListSets},
		{
			name: "the target cluster is not available, in place", world: withoutTarget(worldOf(inPlace(d)), "no Secret", false), want: Rest,
			valid: "False/TargetUnavailable",
		},
		{name: "the target cluster is pending, in place", world: withoutTarget(worldOf(inPlace(d)), "", true), want: Rest},
		{name: "the target cluster is available, in place", world: worldOf(inPlace(d)), want: ListSets},
		{name: "deletion, the sets are being deleted", world: func() World {
			w := worldOf(deployment(3), setOf(d, "s", 3, 3))
			w.Deployment.DeletionTimestamp, w.Owned[0].DeletionTimestamp = &now, &now
			return w
		}(), want: Rest, progressing: "Unknown/Deleting"},
		{name: "deletion, the cache may be late", world: func() World {
			w := worldOf(deployment(3))
			w.Deployment.DeletionTimestamp = &now
			return w
		}(), want: ListSets},
		{name: "deletion, nothing left", world: func() World {
			w := worldOf(deployment(3))
			w.Deployment.DeletionTimestamp, w.LiveSets = &now, map[types.UID]bool{}
			return w
		}(), want: Rest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := Decide(tc.world)
			if v.Do != tc.want {
				t.Fatalf("Do = %s, want %s", v.Do, tc.want)
			}
			if tc.progressing != "" {
				if got := reported(v.Deployment.Status, v1alpha1.MachineDeploymentProgressing); got != tc.progressing {
					t.Errorf("Progressing is %s, want %s", got, tc.progressing)
				}
			}
			if tc.valid != "" {
				if got := reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid); got != tc.valid {
					t.Errorf("Valid is %s, want %s", got, tc.valid)
				}
			}
		})
	}
}

// A deployment that is deleted as kubectl delete --cascade=orphan does is released when none of its
// sets has it as an owner: a garbage collector that does not know the sets yet would delete them.
func TestDeploymentDeletedWithOrphansReleasesSetsFirst(t *testing.T) {
	now := metav1.NewTime(born)
	d := deployment(3)
	set, ending := setOf(d, "s", 3, 3), setOf(d, "ending", 3, 3)
	ending.DeletionTimestamp = &now
	w := worldOf(d, set, ending)
	d.DeletionTimestamp, d.Finalizers = &now, append(d.Finalizers, metav1.FinalizerOrphanDependents)
	if v := Decide(w); v.Do != Release || len(v.Sets) != 1 || v.Sets[0] != set {
		t.Fatalf("%s of %v, want %s of %s", v.Do, v.Sets, Release, set.UID)
	}
	w.Done.Moved[set.UID] = true
	if v := Decide(w); v.Do != Rest || v.Deployment != nil {
		t.Fatalf("with a set that the cache shows: %s, writes %v, want %s without a write", v.Do, v.Deployment, Rest)
	}
	w.Owned = []*v1alpha1.MachineSet{ending}
	if v := Decide(w); v.Do != Rest || v.Deployment == nil || len(v.Deployment.Finalizers) != 1 ||
		v.Deployment.Finalizers[0] != metav1.FinalizerOrphanDependents {
		t.Errorf("without a set: %s, writes %v, want %s without our finalizer", v.Do, v.Deployment, Rest)
	}
}

func TestNothingOfTheSpecIsEverWritten(t *testing.T) {
	d := deployment(3)
	for _, w := range []World{worldOf(d), worldOf(d, setOf(d, "s", 3, 3)), worldOf(d, older("o", time.Hour, 3))} {
		if v := Decide(w); v.Deployment != nil && v.Deployment.Generation != d.Generation {
			t.Error("the generation has changed")
		} else if v.Deployment != nil && v.Deployment.Spec.Strategy.Type != "" {
			t.Error("the strategy that was left open was filled in")
		}
	}
}

func TestTheNewSet(t *testing.T) {
	d := deployment(3)
	set := setOf(d, "s", 3, 3)
	hash := set.Labels[v1alpha1.LabelMachineTemplateHash]
	if hash == "" || set.Spec.Selector.MatchLabels[v1alpha1.LabelMachineTemplateHash] != hash ||
		set.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] != hash {
		t.Errorf("the hash is not on labels, selector and template: %+v", set)
	}
	if set.Annotations["mine"] != "yes" || set.Annotations[v1alpha1.AnnotationDesiredReplicas] != "3" ||
		set.Annotations[v1alpha1.AnnotationMaxReplicas] != "4" {
		t.Errorf("annotations %v", set.Annotations)
	}
	if !IsNewSet(d, set) {
		t.Error("the new set is not recognised")
	}
	d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"a": "b"}
	if !IsNewSet(d, set) {
		t.Error("a Node template that has changed leads to a new set")
	}
	d.Spec.Template.Annotations = map[string]string{"a": "b"}
	if IsNewSet(d, set) {
		t.Error("a template annotation that has changed leads to no new set")
	}
	if got := setName("a-very-long-name-of-a-machine-deployment-that-does-not-fit-into-a-label", "2415498538"); len(got) > maxSetName {
		t.Errorf("the name %s has %d characters", got, len(got))
	}
}

// The hash is frozen: a set is recognised by its template, but a name that changes would be
// surprising.
func TestHashIsStable(t *testing.T) {
	d := deployment(3)
	if got := templateHash(&d.Spec.Template, nil); got != "4249605837" {
		t.Errorf("the hash is %s", got)
	}
	one := int32(1)
	if templateHash(&d.Spec.Template, nil) == templateHash(&d.Spec.Template, &one) {
		t.Error("the collision count does not change the hash")
	}
}

func TestAPlainResizeStaysComplete(t *testing.T) {
	d := deployment(3)
	complete := Decide(worldOf(d, setOf(d, "s", 3, 3))).Deployment
	complete.Spec.Replicas = 5
	v := Decide(worldOf(complete, setOf(complete, "s", 5, 3)))
	if got := reported(v.Deployment.Status, v1alpha1.MachineDeploymentProgressing); got != "True/NewMachineSetAvailable" {
		t.Errorf("Progressing is %s", got)
	}
	if got := reported(v.Deployment.Status,
		v1alpha1.MachineDeploymentAvailable); got != string(corev1.ConditionFalse)+"/MinimumReplicasUnavailable" {
		t.Errorf("Available is %s", got)
	}
}

// What a deployment's annotations say of itself alone is not copied to its sets.
func TestAnnotationsThatStayOnTheDeployment(t *testing.T) {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{
		"note": "copied", v1alpha1.AnnotationDisruptions: "[]", v1alpha1.AnnotationTriggerDeletion: "m",
	}}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	set := setOf(d, "s", 0, 0)
	for key, want := range map[string]string{"note": "copied", v1alpha1.AnnotationDisruptions: "", v1alpha1.AnnotationTriggerDeletion: ""} {
		if got := set.Annotations[key]; got != want {
			t.Errorf("annotation %s: %q, want %q", key, got, want)
		}
	}
}

// TestSetThatTheCacheNeverShows: a set whose slot label was edited is deleted in the slot that it
// names, and no event follows in the slot of the deployment. Each wait for the cache ends after a
// while, when the API server is read again.
func TestSetThatTheCacheNeverShows(t *testing.T) {
	for name, world := range map[string]func(*World){
		"deletion":      func(w *World) { w.Deployment.DeletionTimestamp = &metav1.Time{Time: born} },
		"the first set": func(*World) {},
		"a roll-back":   func(w *World) { w.Deployment.Spec.RollbackTo, w.Confirmed = &v1alpha1.RollbackConfig{}, false },
		"a set that grows": func(w *World) {
			w.Owned, w.Confirmed = []*v1alpha1.MachineSet{setOf(w.Deployment, "s", 2, 2)}, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(deployment(3))
			world(&w)
			if v := Decide(w); v.Do != ListSets {
				t.Fatalf("decided %v before the API server was read, want %v", v.Do, ListSets)
			}
			w.LiveSets = map[types.UID]bool{"hidden": true}
			if v := Decide(w); v.Do != Rest || v.Wake != machinefacts.LateCache || v.Deployment != nil {
				t.Errorf("decided %+v, want to rest for %s", v, machinefacts.LateCache)
			}
		})
	}
}

// TestFades: only an old set that a rollout replaces step by step is deleted without a choice of
// machines.
func TestFades(t *testing.T) {
	for name, tc := range map[string]struct {
		is     bool
		change func(d *v1alpha1.MachineDeployment, before, after *v1alpha1.MachineSet)
	}{
		"rolled":   {true, func(*v1alpha1.MachineDeployment, *v1alpha1.MachineSet, *v1alpha1.MachineSet) {}},
		"paused":   {false, func(d *v1alpha1.MachineDeployment, _, _ *v1alpha1.MachineSet) { d.Spec.Paused = true }},
		"the same": {false, func(_ *v1alpha1.MachineDeployment, _, after *v1alpha1.MachineSet) { after.Spec.Replicas = 3 }},
		"in place": {false, func(d *v1alpha1.MachineDeployment, _, _ *v1alpha1.MachineSet) {
			d.Spec.Strategy.Type = v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
		}},
		"new": {false, func(d *v1alpha1.MachineDeployment, _, after *v1alpha1.MachineSet) {
			after.Spec.Template = d.Spec.Template
		}},
		"resized": {false, func(_ *v1alpha1.MachineDeployment, _, after *v1alpha1.MachineSet) {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationDesiredReplicas, "2")
		}},
		"are named": {false, func(_ *v1alpha1.MachineDeployment, _, after *v1alpha1.MachineSet) {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, "2026-01-02T03:04:05Z")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment(3)
			before := older("a", 0, 3)
			after := before.DeepCopy()
			after.Spec.Replicas = 2
			tc.change(d, before, after)
			if is := IsReplaced(d, before, after); is != tc.is {
				t.Errorf("it is replaced: %v", is)
			}
		})
	}
}

// TestUnreadableIntents: what a set is about to create or delete is not known when its intents
// cannot be read, so that its machines cannot be counted. As in the MachineSet controller nothing
// is decided on such a set, until it is corrected or deleted.
func TestUnreadableIntents(t *testing.T) {
	for name, tc := range map[string]struct {
		intents string
		deleted bool
		want    bool
	}{
		"intents":                            {`{"set":"b","next":3,"create":[2]}`, false, true},
		"intents of another set":             {`{"set":"other","next":3,"create":[2]}`, false, true},
		"not JSON":                           {`{"create":`, false, false},
		"a negative ordinal":                 {`{"next":3,"create":[-2]}`, false, false},
		"not JSON, the set is being deleted": {`{"create":`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment(3)
			d.Annotations[v1alpha1.AnnotationRevision] = "2"
			old, fresh := older("a", time.Hour, 3), setOf(d, "b", 1, 1)
			fresh.Annotations[v1alpha1.AnnotationRevision] = "2"
			old.Annotations[v1alpha1.AnnotationIntents] = tc.intents
			if tc.deleted {
				old.DeletionTimestamp = &metav1.Time{Time: born}
			}
			v := Decide(worldOf(d, old, fresh))
			refused := v.Do == Rest && v.Deployment != nil &&
				reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid) == "False/"+v1alpha1.ReasonInvalidSpec
			if refused == tc.want {
				t.Errorf("%s, refused: %v", v.Do, refused)
			}
			if refused &&
				(len(v.Events) != 1 || !strings.Contains(v.Events[0].Message, "MachineSet "+old.Name+": annotation "+v1alpha1.AnnotationIntents)) {
				t.Errorf("Events %+v, want one that names the set and the annotation", v.Events)
			}
		})
	}
}

func TestWakeWhenAPreservationEnds(t *testing.T) {
	d := deployment(1)
	w := worldOf(d, setOf(d, "s", 1, 0))
	m := w.Machines["s"][0]
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{
		Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &metav1.Time{Time: born.Add(time.Second)},
	}
	if v := finish(countSets(w)); v.Wake != time.Second || v.Deployment.Status.PreservedFailedReplicas != 1 {
		t.Errorf("before: wake in %s, %d preserved", v.Wake, v.Deployment.Status.PreservedFailedReplicas)
	}
	w.Now = born.Add(time.Second)
	if v := finish(countSets(w)); v.Deployment.Status.PreservedFailedReplicas != 0 {
		t.Errorf("after: %d preserved", v.Deployment.Status.PreservedFailedReplicas)
	}
}
