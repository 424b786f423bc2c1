package replica

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// deleteToRecreate has a user delete a MachineDeployment, as kubectl delete --cascade=orphan does
// or with all that it has, and create it again when it is gone.
func (t *trial) deleteToRecreate(r *root, orphans bool) {
	t.logf("a user deletes %s, which orphans its MachineSets: %t, and creates it again", r.key(), orphans)
	r.away, r.changed = true, time.Now()
	t.deleteAs("machinedeployments", r.namespace, r.name, orphans)
}

// deleteAs deletes an object with a policy of propagation.
func (t *trial) deleteAs(resource, namespace, name string, orphans bool) {
	if orphans {
		t.control.Edit(resource, namespace, name, func(u *unstructured.Unstructured) {
			u.SetFinalizers(append(u.GetFinalizers(), metav1.FinalizerOrphanDependents))
		})
	}
	t.control.Delete(resource, namespace, name)
}

// orphan does what Kubernetes' garbage collector does for objects that are deleted with that
// policy.
func (t *trial) orphan() {
	for resource, dependents := range map[string]string{"machinedeployments": "machinesets", "machinesets": "machines"} {
		for _, o := range t.control.List(resource) {
			finalizers := o.GetFinalizers()
			if o.GetDeletionTimestamp() == nil || !slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
				continue
			}
			for _, child := range t.control.List(dependents) {
				t.control.Edit(dependents, child.GetNamespace(), child.GetName(), func(u *unstructured.Unstructured) {
					if owners := slices.DeleteFunc(u.GetOwnerReferences(), func(owner ownerReference) bool {
						return owner.UID == o.GetUID()
					}); len(owners) < len(child.GetOwnerReferences()) {
						u.SetOwnerReferences(owners)
					}
				})
			}
			rest := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerOrphanDependents })
			t.control.Edit(resource, o.GetNamespace(), o.GetName(), func(u *unstructured.Unstructured) { u.SetFinalizers(rest) })
			if len(rest) == 0 {
				t.control.Remove(resource, o.GetNamespace(), o.GetName())
			}
		}
	}
}

// recreate creates the roots again that users have deleted to do so.
func (t *trial) recreate() {
	for _, r := range t.sortedRoots() {
		if r.away && t.control.Get("machinedeployments", r.namespace, r.name) == nil {
			r.away = false
			t.logf("a user creates %s again", r.key())
			t.createRoot(r)
		}
	}
}

// setOf returns the MachineSet of a root that is to have machines; nil for none.
func (t *trial) setOf(r *root) *apiserver.Object {
	for _, set := range t.control.List("machinesets") {
		replicas, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
		if set.GetNamespace() == r.namespace && set.GetLabels()["root"] == r.name && replicas > 0 && set.GetDeletionTimestamp() == nil {
			return set
		}
	}
	return nil
}

// deleteSet has a user delete a MachineSet, with its machines. Its MachineDeployment creates
// another.
func (t *trial) deleteSet(r *root) {
	if set := t.setOf(r); set != nil {
		t.logf("a user deletes MachineSet %s of %s", set.GetName(), r.key())
		t.control.Delete("machinesets", set.GetNamespace(), set.GetName())
	}
}

// recreateAtRest has a root or its MachineSet deleted and created again. With the policy that
// orphans, the machines have to stay.
func (t *trial) recreateAtRest(r *root) *root {
	set := t.setOf(r)
	if set == nil || r.away {
		return nil
	}
	r.changed, r.keeps, r.ends = time.Now(), nil, nil
	r.settles = r.changed.Add(inTime)
	orphans := t.random.IntN(2) == 0
	if machines := t.uidsOf(r, "machines"); orphans {
		r.keeps = machines
	} else {
		r.ends = machines
	}
	if t.random.IntN(2) == 0 {
		r.ends = append(r.ends, t.uidsOf(r, "machinedeployments")...)
		t.deleteToRecreate(r, orphans)
		return r
	}
	r.ends = append(r.ends, string(set.GetUID()))
	t.logf("a user deletes MachineSet %s of %s, which orphans its machines: %t", set.GetName(), r.key(), orphans)
	t.deleteAs("machinesets", set.GetNamespace(), set.GetName(), orphans)
	return r
}

// uidsOf returns the UIDs of a root and what belongs to it, of some resources.
func (t *trial) uidsOf(r *root, resources ...string) (uids []string) {
	for _, resource := range resources {
		for _, o := range t.control.List(resource) {
			if o.GetNamespace() == r.namespace && (o.GetLabels()["root"] == r.name || resource == "machinedeployments" && o.GetName() == r.name) {
				uids = append(uids, string(o.GetUID()))
			}
		}
	}
	return uids
}

// unfinished returns what a root lacks that was created again at rest; "" for nothing. Machines
// that were orphaned have to stay.
func (t *trial) unfinished(r *root) string {
	if len(r.keeps)+len(r.ends) == 0 {
		return ""
	}
	now := t.uidsOf(r, "machinedeployments", "machinesets", "machines")
	for _, uid := range r.keeps {
		if !slices.Contains(now, uid) {
			t.fail("machine %s of %s is gone, and was orphaned to stay", uid, r.key())
		}
	}
	if time.Now().Before(r.settles) {
		return r.key() + " has to settle"
	}
	for _, uid := range r.ends {
		if slices.Contains(now, uid) {
			return fmt.Sprintf("%s of %s is there, and it or its parent was deleted", uid, r.key())
		}
	}
	return ""
}

// holdSome holds deletions in a namespace from before the first replica starts until the faults
// end, in some runs.
func (t *trial) holdSome() {
	if t.random.IntN(3) > 0 {
		return
	}
	t.oracle.holds = servedNamespaces()[t.random.IntN(2)]
	t.logf("deletions in %s are held", t.oracle.holds)
	t.holdDeletions("namespaces", "", t.oracle.holds, "a test")
}

func (t *trial) endHold() {
	t.oracle.mu.Lock()
	held := t.oracle.holds
	t.oracle.holds = ""
	t.oracle.mu.Unlock()
	if held != "" {
		t.logf("deletions in %s are not held any more", held)
		t.holdDeletions("namespaces", "", held, "")
	}
}

// heldIn reports whether deletions in a namespace have always been held.
func (o *oracle) heldIn(namespace string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return namespace != "" && o.holds == namespace
}

// machinePath matches the path of a Machine.
var machinePath = regexp.MustCompile(`/namespaces/([^/]+)/machines/([^/]+)$`)

// deleted checks a write: where deletions are held, no machine is deleted that may run pods. One
// whose Node was deleted is.
func (o *oracle) deleted(q request) {
	match := machinePath.FindStringSubmatch(q.path)
	if q.method != http.MethodDelete || match == nil || !o.heldIn(match[1]) {
		return
	}
	stored := o.control.Get("machines", match[1], match[2])
	if stored == nil || stored.GetDeletionTimestamp() != nil || o.target.Get("nodes", "", match[2]) == nil {
		return
	}
	if m := typed[v1alpha1.Machine](o.trial, stored); !machinefacts.NeverRan(m) {
		o.fail("%s deletes machine %s, and deletions in %s are held", q.replica, m.Name, m.Namespace)
	}
}

// swept checks that no orphan is deleted where deletions are held.
func (o *oracle) swept(r driver.Resource) {
	if o.heldIn(r.Namespace) {
		o.fail("VM %s of machine %s is swept, and deletions in %s are held", r.ID, r.Machine, r.Namespace)
	}
}

// forget has a user remove the finalizers of a Machine, and delete it: its VM is an orphan.
func (t *trial) forget() {
	all := slices.DeleteFunc(t.control.List("machines"), func(m *apiserver.Object) bool {
		return !slices.Contains(servedNamespaces(), m.GetNamespace()) || m.GetName() == "bad"
	})
	if len(all) > 0 {
		m := all[t.random.IntN(len(all))]
		t.logf("a user removes the finalizers of machine %s/%s, and deletes it", m.GetNamespace(), m.GetName())
		t.control.Remove("machines", m.GetNamespace(), m.GetName())
	}
}

// sweepPeriod is the time between two sweeps of orphans, and their quarantine.
const sweepPeriod = 15 * time.Second

// heldOrphans are the orphans whose deletion an Event asks to approve.
type heldOrphans struct {
	mu      sync.Mutex
	digests map[string]string // by MachineClass
}

// followHeldOrphans records which approvals Events ask for.
func (t *trial) followHeldOrphans() {
	t.held.digests = map[string]string{}
	digest := regexp.MustCompile(regexp.QuoteMeta(v1alpha1.AnnotationDeleteOrphans) + `=(\w+)`)
	type event struct {
		Reason, Note string
		Regarding    struct{ Namespace, Name string }
	}
	apiserver.Follow(t.control, "events", func(e *event, _ bool) {
		if match := digest.FindStringSubmatch(e.Note); e.Reason == v1alpha1.EventOrphansHeld && match != nil {
			t.held.mu.Lock()
			defer t.held.mu.Unlock()
			t.held.digests[e.Regarding.Namespace+"/"+e.Regarding.Name] = match[1]
		}
	})
}

// approve has an operator approve the deletion of orphans.
func (t *trial) approve() {
	t.held.mu.Lock()
	digests := t.held.digests
	t.held.digests = map[string]string{}
	t.held.mu.Unlock()
	for class, digest := range digests {
		namespace, name, _ := strings.Cut(class, "/")
		t.logf("an operator approves the deletion of orphans of %s: %s", class, digest)
		t.control.Edit("machineclasses", namespace, name, func(u *unstructured.Unstructured) {
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.AnnotationDeleteOrphans] = digest
			u.SetAnnotations(annotations)
		})
	}
}
