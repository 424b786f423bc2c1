package groups_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// simulated is a namespace with one group, and what a fleet does in it, step by step.
type simulated struct {
	*rapid.T

	pool     *v1alpha1.MachineDeployment
	version  int
	machines map[string]*v1alpha1.Machine
	created  int

	// counted are the machines by which an accepted call has decreased the replicas, removed those
	// that the fleet has deleted.
	counted, removed map[string]bool
	size             int32 // that accepted calls come to
}

// TestEachMachineCountsOnce: calls of several clients are repeated and delayed while the fleet
// works. The replicas decrease by exactly the machines that calls have named, exactly those are
// deleted, and a machine with a Node only if a call has named it.
func TestEachMachineCountsOnce(t *testing.T) {
	worlds.Check(t, 20, func(rt *rapid.T) {
		s := &simulated{
			T: rt, pool: deployment("pool", 0, "2 12"), machines: map[string]*v1alpha1.Machine{},
			counted: map[string]bool{}, removed: map[string]bool{},
		}
		s.pool.Spec.Replicas = int32(rapid.IntRange(2, 12).Draw(rt, "replicas"))
		s.size = s.pool.Spec.Replicas
		for range rapid.IntRange(0, 12).Draw(rt, "fleet before") {
			s.fleet()
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "call") {
				s.call()
			} else {
				s.fleet()
			}
			s.check()
		}
		for range 100 {
			s.settle()
		}
		s.check()
		if len(s.machines) != int(s.size) {
			rt.Fatalf("%d machines in the end, want %d", len(s.machines), s.size)
		}
		for name := range s.counted {
			if !s.removed[name] {
				rt.Fatalf("machine %s was named, and is not deleted", name)
			}
		}
	})
}

func (s *simulated) check() {
	s.Helper()
	if s.pool.Spec.Replicas != s.size || s.size < 2 || s.size > 12 {
		s.Fatalf("%d replicas, want %d", s.pool.Spec.Replicas, s.size)
	}
}

// fleet lets the fleet do one thing.
func (s *simulated) fleet() {
	switch rapid.IntRange(0, 4).Draw(s.T, "step") {
	case 0:
		s.create()
	case 1:
		s.mark()
	case 2:
		s.deleteOne()
	case 3:
		s.gone()
	case 4:
		for _, m := range s.sorted() {
			if m.Status.CurrentStatus.Phase == "" {
				run := machine(m.Name, "pool-set", v1alpha1.MachineRunning)
				run.Annotations, run.DeletionTimestamp = m.Annotations, m.DeletionTimestamp
				s.machines[m.Name] = run
				return
			}
		}
	}
}

func (s *simulated) settle() {
	s.create()
	s.mark()
	s.deleteOne()
	s.gone()
}

func (s *simulated) sorted() (all []*v1alpha1.Machine) {
	for _, name := range slices.Sorted(maps.Keys(s.machines)) {
		all = append(all, s.machines[name])
	}
	return all
}

func (s *simulated) named() []string {
	if list := s.pool.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// standing are the machines that are there for the replicas.
func (s *simulated) standing() (all []*v1alpha1.Machine) {
	for _, m := range s.sorted() {
		isNamed := slices.ContainsFunc(s.named(), func(entry string) bool { return strings.HasPrefix(entry, m.Name+"~") })
		if m.DeletionTimestamp == nil && m.Annotations[v1alpha1.AnnotationPriority] == "" && !isNamed {
			all = append(all, m)
		}
	}
	return all
}

// create creates a missing machine, or deletes one in excess: one without a Node first.
func (s *simulated) create() {
	standing := s.standing()
	switch excess := len(standing) - int(s.pool.Spec.Replicas); {
	case excess < 0:
		s.created++
		name := "m" + strconv.Itoa(s.created)
		s.machines[name] = machine(name, "pool-set", "")
	case excess > 0:
		for _, m := range standing {
			if m.Status.CurrentStatus.Phase == "" {
				leaving(m)
				return
			}
		}
		s.Fatalf("a machine with a Node is in excess")
	}
}

// mark marks the machines that are named.
func (s *simulated) mark() {
	for _, entry := range s.named() {
		name, _, _ := strings.Cut(entry, "~")
		if m := s.machines[name]; m != nil && m.DeletionTimestamp == nil {
			marked(m)
		}
	}
}

// deleteOne deletes a marked machine, and removes names of machines that are being deleted.
func (s *simulated) deleteOne() {
	for _, m := range s.sorted() {
		if m.Annotations[v1alpha1.AnnotationPriority] != "" && m.DeletionTimestamp == nil {
			leaving(m)
			break
		}
	}
	left := slices.DeleteFunc(s.named(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "~")
		return s.machines[name] == nil || s.machines[name].DeletionTimestamp != nil
	})
	if next := strings.Join(left, ","); next != s.pool.Annotations[v1alpha1.AnnotationTriggerDeletion] {
		s.pool = s.pool.DeepCopy()
		s.pool.Annotations[v1alpha1.AnnotationTriggerDeletion] = next
		s.version++
	}
}

// gone ends the deletion of one machine.
func (s *simulated) gone() {
	for _, m := range s.sorted() {
		if m.DeletionTimestamp != nil {
			s.removed[m.Name] = true
			delete(s.machines, m.Name)
			return
		}
	}
}

func (s *simulated) read() *groups.Namespace {
	return world{deployments: []*v1alpha1.MachineDeployment{s.pool}, machines: s.sorted()}.read()
}

// call is one call: it finds Nodes on an old state, reads the MachineDeployment, then the machines,
// and writes if the MachineDeployment is still the same.
func (s *simulated) call() {
	old := s.read()
	nodes := s.someNodes()
	s.maybeFleet()
	live, version := groups.Live{Deployment: s.pool, Now: now}, s.version
	s.maybeFleet()
	kind := rapid.SampledFrom([]string{"increase", "decrease", "delete", "delete", "delete"}).Draw(s.T, "kind")
	delta := int32(rapid.IntRange(-4, 6).Draw(s.T, "delta"))
	var desired *v1alpha1.MachineDeployment
	var err error
	var targets []groups.Target
	switch kind {
	case "increase":
		desired, err = groups.Increase(live, delta)
	case "decrease":
		var machines []groups.Machine
		for _, m := range s.sorted() {
			machines = append(machines, groups.MachineOf(m, now))
		}
		desired, err = groups.Decrease(live, delta, machines)
	case "delete":
		if targets, err = old.Targets("pool", nodes); err == nil {
			for i, t := range targets {
				if m := s.machines[t.Machine.Name]; m != nil {
					targets[i].Machine = groups.MachineOf(m, now)
				} else {
					targets[i].Gone = true
				}
			}
			desired, err = groups.Delete(live, targets)
		}
	}
	s.maybeFleet()
	if err != nil || desired == nil || version != s.version {
		return
	}
	s.accept(kind, delta, desired, targets)
}

// accept writes, and counts what the write has to change.
func (s *simulated) accept(kind string, delta int32, desired *v1alpha1.MachineDeployment, targets []groups.Target) {
	before := s.named()
	s.pool = desired
	s.version++
	fresh := s.named()[len(before):]
	for _, entry := range fresh {
		name, _, _ := strings.Cut(entry, "~")
		if s.counted[name] {
			s.Fatalf("machine %s counts twice", name)
		}
		if kind == "delete" && !slices.ContainsFunc(targets, func(t groups.Target) bool { return t.Machine.Name == name }) {
			s.Fatalf("machine %s was not requested to be deleted", name)
		}
		if kind == "decrease" && s.machines[name] == nil {
			s.Fatalf("machine %s is not there", name)
		}
		s.counted[name] = true
	}
	if kind == "delete" {
		s.size -= int32(len(fresh))
	} else {
		s.size += delta
	}
}

func (s *simulated) maybeFleet() {
	if rapid.IntRange(0, 3).Draw(s.T, "meanwhile") == 0 {
		s.fleet()
	}
}

// someNodes draws Nodes and instances: of machines that are there, or were.
func (s *simulated) someNodes() (nodes []groups.Node) {
	for range rapid.IntRange(0, 4).Draw(s.T, "nodes") {
		name := fmt.Sprint("m", rapid.IntRange(1, s.created+1).Draw(s.T, "machine"))
		node := nodeOf(name)
		node.Annotations = map[string]string{v1alpha1.AnnotationMachine: "n/" + name + "/uid-of-" + name}
		if rapid.Bool().Draw(s.T, "without Node") {
			node = instance(groups.Requested + name)
		}
		nodes = append(nodes, node)
	}
	return nodes
}
