//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// machineBar is how many bytes of JSON a machine may have: the autoscaler's search for the group of a Node goes through all
	// machines of the namespace. It caches them with their managedFields, which are not counted, since the API server writes them.
	machineBar = 3000
)

// autoscalerReadsObjects checks the effects of the autoscaler's whole-object writes, and its lookups.
func (s *space) autoscalerReadsObjects() {
	const pool = "pool"
	s.deploy(pool, 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.AutoPreserveFailedMachineMax = 1
		d.Annotations = map[string]string{"autoscaler.gardener.cloud/scale-down-unneeded-time": "15m", v1alpha1.AnnotationCountMinReady: "true"}
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "pool", "node.kubernetes.io/role": "node"}
	})
	s.deploy("other", 1)
	s.running("", 3)
	s.reports(pool, 2)
	s.joined()
	names := s.machineNames(pool)

	s.proves("CA-28", func(s *space) {
		a := s.scaler(3, pool)
		other := s.machineNames("other")[0]
		var of grouped
		if a.do(&of, "group-of-node", other); of != (grouped{"", other}) {
			s.Errorf("a Node of another pool is of %+v", of)
		}
		s.scaler(1, pool).refuses(refusedOtherGroup, "group-of-node", other)
		if a.do(&of, "group-of-node", names[0]); of != (grouped{pool, names[0]}) {
			s.Errorf("Node %s is of %+v", names[0], of)
		}
		machines, err1 := s.machines(s.Context(), "")
		sets, err2 := s.api().MachineSets(s.name).List(s.Context(), metav1.ListOptions{})
		s.must(errors.Join(err1, err2))
		kinds := map[string]string{}
		for _, set := range sets.Items {
			kinds[set.Name] = set.OwnerReferences[0].Kind + " " + set.OwnerReferences[0].Name
		}
		for _, m := range machines {
			if got, want := kinds[m.OwnerReferences[0].Name], "MachineDeployment "+m.Labels[v1alpha1.LabelName]; got != want {
				s.Errorf("machine %s is owned by %v, and that by %s, want %s", m.Name, m.OwnerReferences, got, want)
			}
		}
	})
	s.proves("CA-26", func(s *space) { s.survivesOlderTypes(pool) })
	s.proves("CA-29", func(s *space) { s.keepsMachinesSmall("other") })
	s.proves("CA-30", func(s *space) {
		a := s.scaler(3, pool)
		film := s.film()
		s.patch("machines", names[0], `{"metadata":{"ownerReferences":null}}`)
		s.eventually("the Node has a group again", func(ctx context.Context) error {
			var of grouped
			refused, err := a.query(ctx, &of, "group-of-node", names[0])
			if err == nil && of != (grouped{pool, names[0]}) {
				err = fmt.Errorf("it is of %+v, refused since %q", of, refused)
			}
			return err
		})
		s.adopted(film, names[0])
		s.running(pool, 2)
		if after := s.machineNames(pool); !slices.Equal(names, after) {
			s.Errorf("the machines were %v and are %v", names, after)
		}
	})
	s.proves("CA-30/orphan", func(s *space) {
		a := s.scaler(3, pool)
		m := s.createMachine(s.name + "-nobodys")
		s.eventually("it runs", func(ctx context.Context) error {
			got, err := s.api().Machines(s.name).Get(ctx, m.Name, metav1.GetOptions{})
			if err == nil && got.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
				err = fmt.Errorf("it is %s", got.Status.CurrentStatus.Phase)
			}
			return err
		})
		// No MachineSet can adopt it, and the fleet may not delete it: the user has to fix the error.
		a.refuses(refusedNoOwner, "group-of-node", m.Name)
	})
}

// keepsMachinesSmall adds a machine that cannot be created, and one that is updated in place, and measures all versions of all
// machines of the namespace meanwhile.
func (s *space) keepsMachinesSmall(updated string) {
	s.Helper()
	film := s.film()
	class := harness.Class(s.name, `{"instanceType":"huge-1"}`)
	class.Name = "huge"
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.deploy("failing", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = class.Name })
	s.patch("machinedeployments", updated, `{"spec":{"strategy":{"type":"InPlaceUpdate","rollingUpdate":null,"inPlaceUpdate":{`+
		`"maxSurge":0,"maxUnavailable":1,"orchestrationType":"Auto"}},"template":{"metadata":{"annotations":{"template":"second"}}}}}`)
	s.eventually("machines have failed and were updated", func(context.Context) error {
		var wrong complaints
		seen := s.sizes(film)
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineInPlaceUpdating} {
			wrong.unless(seen[phase].whole > 0, "none was %s", phase)
		}
		return wrong.err()
	})
	s.running(updated, 1)
	for phase, size := range s.sizes(film) {
		s.Logf("in the phase %q machines have up to %d bytes, %d with managedFields", phase, size.bare, size.whole)
		if size.bare > machineBar {
			s.Errorf("in the phase %q machines have up to %d bytes, want at most %d", phase, size.bare, machineBar)
		}
	}
}

// size of a machine in bytes of JSON, without and with its managedFields.
type size struct{ bare, whole int }

// sizes are the largest of machines that a film shows, by phase.
func (s *space) sizes(film *recording) map[v1alpha1.MachinePhase]size {
	s.Helper()
	moments, err := film.play()
	s.must(err)
	bytes := func(m *v1alpha1.Machine) int {
		text, err := json.Marshal(m)
		s.must(err)
		return len(text)
	}
	largest := map[v1alpha1.MachinePhase]size{}
	for _, moment := range moments {
		m, is := moment.object.(*v1alpha1.Machine)
		if !is {
			continue
		}
		bare := m.DeepCopy()
		bare.ManagedFields = nil
		phase := m.Status.CurrentStatus.Phase
		largest[phase] = size{max(largest[phase].bare, bytes(bare)), max(largest[phase].whole, bytes(m))}
	}
	return largest
}

// adopted waits until a film shows a machine without an owner, and with one after that.
func (s *space) adopted(film *recording, name string) {
	s.Helper()
	s.eventually("machine "+name+" was adopted", func(context.Context) error {
		var alone time.Time
		machines, moments := shown[*v1alpha1.Machine](s, film)
		for i, m := range machines {
			switch {
			case m.Name != name:
			case len(m.OwnerReferences) == 0 && alone.IsZero():
				alone = moments[i].seen
			case len(m.OwnerReferences) == 1 && !alone.IsZero():
				s.Logf("machine %s had an owner again after %s", name, moments[i].seen.Sub(alone))
				return nil
			}
		}
		return fmt.Errorf("it was without an owner: %t", !alone.IsZero())
	})
}

// survivesOlderTypes: a client that does not know all fields writes a MachineDeployment and a machine.
func (s *space) survivesOlderTypes(pool string) {
	s.Helper()
	own := func(of map[string]string) map[string]string {
		found := map[string]string{}
		for key, value := range of {
			if strings.HasPrefix(key, v1alpha1.FleetDomain) || strings.HasPrefix(key, "autoscaler.gardener.cloud/") {
				found[key] = value
			}
		}
		return found
	}
	before, machines, film := s.deployment(pool), s.joined(), s.film()
	a := s.scaler(3, pool)
	a.resize("increase-size", pool, 1, 3)
	s.running(pool, 3)
	s.reports(pool, 3)
	after := s.deployment(pool)
	if after.Spec.AutoPreserveFailedMachineMax != 0 {
		s.Fatal("the double knows all fields, so that the test shows nothing")
	}
	if diff := cmp.Diff(own(before.Annotations), own(after.Annotations)) + cmp.Diff(before.Labels, after.Labels); diff != "" || len(own(before.Annotations)) != 3 || after.Labels[v1alpha1.LabelSlot] == "" {
		s.Errorf("annotations and labels before and after (-want +got):\n%s", diff)
	}
	if len(after.Status.Conditions) != 2 || progress(after) != progressDone {
		s.Errorf("conditions before and after: %v, %v", before.Status.Conditions, after.Status.Conditions)
	}
	var options map[string]string
	if a.do(&options, "options", pool); options["scale-down-unneeded-time"] != "15m" {
		s.Errorf("the autoscaler has the options %v", options)
	}
	s.turnover(film, pool, 1)
	if now := s.joined(); !maps.Equal(machines, intersection(machines, now)) {
		s.Errorf("machines and their VMs were %v and are %v", machines, now)
	}
	// The first generation writes machines, too; these keep fields that it does not know until they are deleted.
	s.hasSets(2)
	last := slices.DeleteFunc(s.machineNames(pool), func(name string) bool { _, old := machines[name]; return old })[0]
	s.scaler(1, pool).deletes(pool, sized{Replicas: 2, Deleted: []string{last}, Writes: 1}, last)
	s.turnover(film, pool, 1, last)
	versions, _ := shown[*v1alpha1.Machine](s, film)
	for _, m := range versions {
		if m.Name == last && m.Annotations[v1alpha1.AnnotationPriority] == v1alpha1.PriorityTriggered && len(own(m.Annotations)) == 0 {
			s.Errorf("machine %s has lost the fleet's notes: %v", last, m.Annotations)
		}
	}
}

// intersection is what of a is also in b.
func intersection(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.DeleteFunc(both, func(key, value string) bool { return b[key] != value })
	return both
}

// autoscalerMeetsALateFleet delays the watches of the fleet, while the autoscaler changes the size several times.
func (s *space) autoscalerMeetsALateFleet() {
	const pool, late = "pool", 300 * time.Millisecond
	s.deploy(pool, 4)
	s.running(pool, 4)
	s.reports(pool, 4)
	s.joined()
	replicas, err := s.lab.Replicas(s.Context())
	s.must(err)
	for _, replica := range replicas {
		s.must(s.lab.SetFault(s.Context(), replica, harness.LinkControl, harness.Delay(late, harness.Answers)))
		s.Cleanup(func() { s.must(s.lab.Heal(context.WithoutCancel(s.Context()), replica)) })
	}
	s.proves("CA-12", func(s *space) {
		a := s.scaler(3, pool)
		film, names := s.film(), s.machineNames(pool)
		position := s.auditEnd()
		// One more, one less, one more: the existing ones except the named one, and two new ones.
		a.resize("increase-size", pool, 1, 5)
		a.deletes(pool, sized{Replicas: 4, Deleted: names[1:2], Writes: 1}, names[1])
		a.resize("increase-size", pool, 1, 5)
		s.inOneGo(position, 3)
		a.do(new(refreshed), "refresh")
		s.turnover(film, pool, 2, names[1])
		s.running(pool, 5)
		position = s.auditEnd()
		// Two less, named one by one, and one more.
		a.deletes(pool, sized{Replicas: 4, Deleted: names[:1], Writes: 1}, names[0])
		a.deletes(pool, sized{Replicas: 3, Deleted: names[2:3], Writes: 1}, names[2])
		a.resize("increase-size", pool, 1, 4)
		s.inOneGo(position, 3)
		a.do(new(refreshed), "refresh")
		s.turnover(film, pool, 3, names[:3]...)
		s.running(pool, 4)
		s.stands(pool, s.machineNames(pool)...)
		s.joined()
	})
}

type refreshed struct{ Cordoned []string }

// inOneGo checks that the autoscaler has written MachineDeployments so many times since the position. How far its writes are apart is
// logged: the later a busy machine makes them, the more the fleet sees between them.
func (s *space) inOneGo(since harness.AuditPosition, writes int) {
	s.Helper()
	_, _, puts := s.deploymentWrites(since)
	if len(puts) != writes {
		s.Fatalf("the autoscaler has written %d times, want %d", len(puts), writes)
	}
	s.Logf("the autoscaler has written %d times within %s", writes, puts[writes-1].Sub(puts[0]))
}

// autoscalerMeetsAHandOver moves the slot of a MachineDeployment while its machines are being deleted, and the process of its
// owner is killed while others are.
func (s *space) autoscalerMeetsAHandOver() {
	const pool = "pool"
	s.deploy(pool, 6)
	s.running(pool, 6)
	s.reports(pool, 6)
	s.joined()
	film, names := s.film(), s.machineNames(pool)
	s.proves("CA-27", func(s *space) {
		a := s.scaler(3, pool)
		first := names[:2]
		point := s.stopNext("PATCH", "machines/"+first[0]) // it is marked
		a.deletes(pool, sized{Replicas: 4, Deleted: first, Writes: 1}, first...)
		at := point.stopped()
		checkContinued := s.continued(at.Session, pool, first...)
		m := s.handOver(s.slot(pool))
		point.release()
		s.arrives(m)
		s.stands(pool, names[2:]...)
		s.turnover(film, pool, 0, first...)
		checkContinued()
	})
	s.proves("CA-27/killed", func(s *space) {
		a := s.scaler(3, pool)
		next := names[2:4]
		point := s.stopNext("DELETE", "machines/"+next[0])
		a.deletes(pool, sized{Replicas: 2, Deleted: next, Writes: 1}, next...)
		at := point.stopped()
		s.must(s.lab.Do(s.Context(), at.Replica, harness.Crash))
		checkContinued := s.continued(at.Session, pool, next...)
		s.stands(pool, names[4:]...)
		s.turnover(film, pool, 0, append(next, names[:2]...)...)
		checkContinued()
		s.comesUp(at.Replica)
	})
}

// faultPoint is a harness.FaultPoint of a test, which ends with the test.
type faultPoint struct {
	*space

	point *harness.FaultPoint
}

// stopNext stops the next write of an object of the namespace, by any replica. The leader may move the slot at any time, until the
// write has stopped.
func (s *space) stopNext(verb, path string) *faultPoint {
	s.Helper()
	point, err := s.lab.StopNext(s.Context(), verb+" /apis/machine.sapcloud.io/v1alpha1/namespaces/"+s.name+"/"+path)
	s.must(err)
	s.Cleanup(func() {
		if err := point.Release(context.WithoutCancel(s.Context())); err != nil {
			s.Log(err) // a replica that starts has no fault points
		}
	})
	return &faultPoint{s, point}
}

// stopped waits until the write has stopped.
func (p *faultPoint) stopped() harness.Stopped {
	p.Helper()
	at, err := p.point.Wait(p.Context())
	p.must(err)
	return at
}

// release resumes the write.
func (p *faultPoint) release() {
	p.Helper()
	p.must(p.point.Release(p.Context()))
}

// continued records the machines of a pool that will be deleted, when a session is about to lose their slot. The returned function
// checks that each session that has held the slot since has read the MachineDeployment and these machines live, before it wrote
// any object of the pool, and that they have deleted all of the machines that were not being deleted.
func (s *space) continued(before, pool string, names ...string) func() {
	s.Helper()
	position := s.auditEnd()
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	unread, undone := []metav1.Object{s.deployment(pool)}, map[string]bool{}
	for _, m := range machines {
		if slices.Contains(names, m.Name) && m.DeletionTimestamp == nil {
			unread, undone[m.Name] = append(unread, &m), true
		}
	}
	if len(undone) == 0 {
		s.Fatal("no machine is left to delete")
	}
	return func() {
		s.Helper()
		requests, err := s.lab.Requests(position)
		s.must(err)
		remaining := map[string][]metav1.Object{} // what a session has not read yet
		for _, r := range requests {
			by, known := check.ParseActor(r.UserAgent)
			if !known || by.Session == before || r.Group != v1alpha1.GroupName {
				continue
			}
			if _, seen := remaining[by.Session]; !seen {
				remaining[by.Session] = slices.Clone(unread)
			}
			remaining[by.Session] = slices.DeleteFunc(remaining[by.Session], func(o metav1.Object) bool { return reads(r, o) })
			if !r.IsWrite() || r.Namespace != s.name || r.Resource == "machineclasses" {
				continue
			}
			if n := len(remaining[by.Session]); n > 0 {
				s.Errorf("%s did %s %s/%s, and had yet to read %d objects", by.Session, r.Verb, r.Resource, r.Name, n)
			}
			if r.Verb == "delete" && r.Resource == "machines" && r.Code == http.StatusOK {
				delete(undone, r.Name)
			}
		}
		if len(undone) > 0 {
			s.Errorf("no session but %s has deleted %v", before, undone)
		}
	}
}

// reads reports whether a request gets an object, or a list that contains it, and not from a cache.
func reads(r harness.Request, o metav1.Object) bool {
	resource := "machines"
	if _, is := o.(*v1alpha1.MachineDeployment); is {
		resource = "machinedeployments"
	}
	requested, err := url.Parse(r.URI)
	if err != nil || r.Resource != resource || r.Namespace != "" && r.Namespace != o.GetNamespace() || requested.Query().Get("resourceVersion") != "" {
		return false
	}
	selector, err := labels.Parse(requested.Query().Get("labelSelector"))
	return r.Verb == "get" && r.Name == o.GetName() || r.Verb == "list" && err == nil && selector.Matches(labels.Set(o.GetLabels()))
}
