package scale

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// failed is a machine that has failed, of that age in hours, with annotations.
func failed(age int, annotations map[string]string) *v1alpha1.Machine {
	name := fmt.Sprintf("m%d", age)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: annotations,
		CreationTimestamp: metav1.NewTime(born.Add(-time.Duration(age) * time.Hour)),
	}}
	m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	return m
}

func saying(value string) map[string]string {
	return map[string]string{v1alpha1.AnnotationPreserve: value}
}

func until(m *v1alpha1.Machine, d time.Duration) *v1alpha1.Machine {
	m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: born.Add(d)}
	return m
}

func TestAutoPreserve(t *testing.T) {
	auto := saying(v1alpha1.PreserveAuto)
	unhealthy := failed(1, nil)
	unhealthy.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
	noted := func(value string) map[string]string {
		return map[string]string{v1alpha1.AnnotationLastAppliedNodePreserveValue: value}
	}
	for _, tc := range []struct {
		name     string
		most     int32
		machines []*v1alpha1.Machine
		want     map[string]string // value by machine
	}{
		{"none may be", 0, []*v1alpha1.Machine{failed(1, nil)}, nil},
		{"one", 1, []*v1alpha1.Machine{failed(1, nil)}, map[string]string{"m1": v1alpha1.PreserveAuto}},
		{"the newest", 2, []*v1alpha1.Machine{failed(1, nil), failed(3, nil), failed(2, nil)}, map[string]string{
			"m1": v1alpha1.PreserveAuto, "m2": v1alpha1.PreserveAuto,
		}},
		{"no room", 1, []*v1alpha1.Machine{failed(1, nil), failed(2, auto)}, nil},
		{"some room", 2, []*v1alpha1.Machine{failed(1, nil), failed(3, nil), failed(2, auto)}, map[string]string{"m1": v1alpha1.PreserveAuto}},
		{
			"too many: the oldest", 1, []*v1alpha1.Machine{failed(1, auto), failed(3, auto), failed(2, auto)}, map[string]string{"m3": "", "m2": ""},
		},
		{"no more at all", 0, []*v1alpha1.Machine{failed(1, auto)}, map[string]string{"m1": ""}},
		{"not failed", 1, []*v1alpha1.Machine{unhealthy}, nil},
		{"requested", 1, []*v1alpha1.Machine{failed(1, saying(v1alpha1.PreserveNow)), failed(2, saying(v1alpha1.PreserveWhenFailed))}, nil},
		{"refused", 1, []*v1alpha1.Machine{failed(1, saying(v1alpha1.PreserveFalse))}, nil},
		{"refused on the Node", 1, []*v1alpha1.Machine{failed(1, noted(v1alpha1.PreserveFalse))}, nil},
		{"requested on the Node", 1, []*v1alpha1.Machine{failed(1, noted(v1alpha1.PreserveNow))}, nil},
		{"the value is invalid", 1, []*v1alpha1.Machine{failed(1, saying("always"))}, map[string]string{"m1": v1alpha1.PreserveAuto}},
		{"its time was over", 1, []*v1alpha1.Machine{until(failed(1, nil), 0)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{AutoPreserveFailedMachineMax: tc.most}}
			got := map[string]string{}
			for _, m := range autoPreserve(World{Now: born, Set: set}, tc.machines) {
				got[m.Name] = m.Annotations[v1alpha1.AnnotationPreserve]
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("changed %v, want %v", got, tc.want)
			}
		})
	}
}

func TestIsToBeReplaced(t *testing.T) {
	running := failed(1, nil)
	running.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	for _, tc := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    bool
	}{
		{"runs", running, false},
		{"runs, and its time is over", until(running.DeepCopy(), -time.Hour), false},
		{"failed", failed(1, nil), true},
		{"preserved", until(failed(1, nil), time.Hour), false},
		{"preserved, and no longer requested: the Node is changed first", until(failed(1, saying(v1alpha1.PreserveFalse)), time.Hour), false},
		{"its time is over", until(failed(1, saying(v1alpha1.PreserveNow)), 0), true},
		{"about to be preserved", failed(1, saying(v1alpha1.PreserveNow)), false},
		{"about to be preserved when it fails", failed(1, saying(v1alpha1.PreserveWhenFailed)), false},
		{"chosen", failed(1, saying(v1alpha1.PreserveAuto)), false},
		{"not to be preserved", failed(1, saying(v1alpha1.PreserveFalse)), true},
		{"asked for in words that mean nothing", failed(1, saying("always")), true},
		{
			"asked for by its Node", failed(1, map[string]string{v1alpha1.AnnotationLastAppliedNodePreserveValue: v1alpha1.PreserveWhenFailed}),
			false,
		},
		{"refused by its Node", failed(1, map[string]string{
			v1alpha1.AnnotationLastAppliedNodePreserveValue: v1alpha1.PreserveFalse, v1alpha1.AnnotationPreserve: v1alpha1.PreserveNow,
		}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isToBeReplaced(World{Now: born, Set: labeledSet(), Disruptions: []disruption.Disruption{{UID: tc.machine.UID}}},
				tc.machine); got != tc.want {
				t.Errorf("to be replaced: %v, want %v", got, tc.want)
			}
		})
	}
}

// A machine that is chosen is not replaced because its annotation could not be written: it has
// changed, or the API server was away.
func TestAChosenMachineIsNotReplacedBeforeItIsMarked(t *testing.T) {
	m := failed(1, nil)
	m.Labels = map[string]string{"a": "b"}
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s", UID: "s", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
		},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: 1, AutoPreserveFailedMachineMax: 1,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}
	w := World{Now: born, Set: set, Owned: []*v1alpha1.Machine{m}, Disruptions: []disruption.Disruption{{UID: m.UID}}}
	v := Decide(w)
	if v.Do != Update || len(v.Machines) != 1 || v.Machines[0].Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.PreserveAuto {
		t.Fatalf("Do = %s %v", v.Do, v.Machines)
	}
	w.Done.Updated = map[types.UID]bool{m.UID: true}
	if v := Decide(w); v.Do != Rest {
		t.Errorf("after a try without effect: Do = %s", v.Do)
	}
	w.Owned = v.Machines
	if v := Decide(w); v.Do != Rest || v.Set.Status.AutoPreserveFailedMachineCount != 1 {
		t.Errorf("after the write: Do = %s, %d are counted", v.Do, v.Set.Status.AutoPreserveFailedMachineCount)
	}
}

// autoWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const autoWorlds = 1000

// TestAutoPreservationStaysWithinItsLimit has machines fail and recover, users request and refuse
// preservation, and the limit change, while the set decides, and a substitute of the machine
// controller follows the annotations.
func TestAutoPreservationStaysWithinItsLimit(t *testing.T) {
	for seed := range uint64(worlds.Some(autoWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed+1, 0))
			f := &flock{T: t, random: random, now: born, most: int32(random.IntN(3)), expired: map[types.UID]bool{}}
			for age := range 6 {
				m := failed(age, map[string]string{})
				m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
				f.machines = append(f.machines, m)
			}
			for range random.IntN(60) {
				f.happen()
				f.preserve()
				f.decide()
			}
			f.preserve()
			f.decide()
			f.decide()
			f.check()
		})
	}
}

// flock is the machines of a set.
type flock struct {
	*testing.T

	random   *rand.Rand
	now      time.Time
	most     int32
	machines []*v1alpha1.Machine
	expired  map[types.UID]bool // machines that have failed and whose time was over
}

func (f *flock) happen() {
	if len(f.machines) == 0 {
		return
	}
	m := f.machines[f.random.IntN(len(f.machines))]
	switch f.random.IntN(5) {
	case 0:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	case 1:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	case 2:
		values := []string{v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveFalse}
		m.Annotations[v1alpha1.AnnotationPreserve] = values[f.random.IntN(len(values))]
	case 3:
		f.now = f.now.Add(time.Duration(f.random.IntN(5)) * time.Hour)
	case 4:
		f.most = int32(f.random.IntN(3))
	}
}

// preserve does what the machine controller does, see controllers/machine/preserve.
func (f *flock) preserve() {
	for _, m := range f.machines {
		s := &m.Status.CurrentStatus
		isFailed := s.Phase == v1alpha1.MachineFailed
		over := s.PreserveExpiryTime != nil && !s.PreserveExpiryTime.After(f.now)
		desired := false
		switch value := m.Annotations[v1alpha1.AnnotationPreserve]; value {
		case v1alpha1.PreserveNow:
			desired = !over
		case v1alpha1.PreserveWhenFailed, v1alpha1.PreserveAuto:
			if desired = isFailed && !over; value == v1alpha1.PreserveAuto && !desired {
				delete(m.Annotations, v1alpha1.AnnotationPreserve)
			}
		}
		switch {
		case desired && s.PreserveExpiryTime == nil:
			s.PreserveExpiryTime = &metav1.Time{Time: f.now.Add(4 * time.Hour)}
		case !desired && (!over || !isFailed):
			s.PreserveExpiryTime = nil
		}
		if over {
			delete(m.Annotations, v1alpha1.AnnotationPreserve)
		}
		f.expired[m.UID] = isFailed && (over || f.expired[m.UID])
	}
}

// decide executes the decisions of the set on preservation and replacement, and checks their
// effect.
func (f *flock) decide() {
	w := World{Now: f.now, Set: &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{AutoPreserveFailedMachineMax: f.most}}}
	for _, changed := range autoPreserve(w, f.machines) {
		i := slices.IndexFunc(f.machines, func(m *v1alpha1.Machine) bool { return m.UID == changed.UID })
		f.machines[i] = changed
		if isAutoPreserved(changed) && f.expired[changed.UID] {
			f.Fatalf("%s is preserved once more after its time was over", changed.Name)
		}
	}
	for _, m := range f.machines {
		w.Disruptions = append(w.Disruptions, disruption.Disruption{UID: m.UID})
	}
	f.machines = slices.DeleteFunc(f.machines, func(m *v1alpha1.Machine) bool {
		replaced := isToBeReplaced(w, m)
		expiry := m.Status.CurrentStatus.PreserveExpiryTime
		if value := m.Annotations[v1alpha1.AnnotationPreserve]; replaced && expiry != nil && expiry.After(f.now) &&
			value != v1alpha1.PreserveFalse {
			f.Fatalf("%s is replaced, which is preserved until %s", m.Name, expiry)
		}
		return replaced
	})
	kept := 0
	for _, m := range f.machines {
		if isAutoPreserved(m) {
			kept++
		}
	}
	if kept > int(f.most) {
		f.Fatalf("%d machines are preserved, and %d may be", kept, f.most)
	}
}

// check looks at what is left when nothing happens any more.
func (f *flock) check() {
	for _, m := range f.machines {
		s := m.Status.CurrentStatus
		if s.Phase == v1alpha1.MachineFailed && (s.PreserveExpiryTime == nil || !s.PreserveExpiryTime.After(f.now)) && !isAutoPreserved(m) {
			f.Errorf("%s has failed, and is neither preserved nor replaced: %v", m.Name, m.Annotations)
		}
	}
}
