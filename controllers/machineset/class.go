package machineset

import (
	"context"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// A class is checked again after brokenClassCheck while machines of it cannot get VMs, else after
// classCheck: once there are machines, they wait for what is missing, and report it. A check that
// was put off is tried again after putOffClassCheck.
const (
	brokenClassCheck = 30 * time.Second
	classCheck       = 10 * time.Minute
	putOffClassCheck = 5 * time.Second
)

// classCheckOf is the result of the checks of a set's class.
type classCheckOf struct {
	class   string // "" before the first check
	problem string
	unknown bool      // no check has succeeded
	failed  bool      // the last check, so that nothing new is known
	next    time.Time // when the class is checked again
}

// observeClass records what is known of the class of a set whose class has not proved itself: no
// machine of the set has a VM. Sets that a rollout replaces are left out: their class may have been
// deleted, and they create no machines.
func (c *Controller) observeClass(w *scale.World, known *done) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.ClassProblem == nil || c.isOld(w.Set) || w.Set.DeletionTimestamp != nil || slices.ContainsFunc(w.Owned, hasVM) {
		known.class = classCheckOf{}
		return
	}
	switch known.class.class {
	case w.Set.Spec.Template.Spec.Class.Name:
		w.ClassProblem, w.ClassUnknown, w.ClassCheckLast = known.class.problem, known.class.unknown, known.class.failed
		w.MustCheckClass = !c.own.Now().Before(known.class.next)
	case "":
		w.ClassUnknown, w.MustCheckClass = true, true
	default:
		w.MustCheckClass = true
	}
}

// isOld reports whether the MachineDeployment of a set has one of a newer revision.
func (c *Controller) isOld(set *v1alpha1.MachineSet) bool {
	root, ok := ownerref.RootOfSet(c.cfg.View, set)
	return ok && slices.ContainsFunc(c.cfg.View.Sets.Under(root), func(other *v1alpha1.MachineSet) bool {
		return machinefacts.Revision(other) > machinefacts.Revision(set)
	})
}

func hasVM(m *v1alpha1.Machine) bool { return m.Spec.ProviderID != "" }

// checkClass checks the class of a set. A check that fails changes nothing, and is repeated later:
// the machines have to be created all the same. So is one that would have to wait for others.
// Errors: the end of ctx, or of the ownership.
func (c *Controller) checkClass(ctx context.Context, w *scale.World) error {
	class := types.NamespacedName{Namespace: w.Set.Namespace, Name: w.Set.Spec.Template.Spec.Class.Name}
	is := classCheckOf{class: class.Name, problem: w.ClassProblem, unknown: w.ClassUnknown, failed: w.ClassCheckLast}
	is.next = c.own.Now().Add(putOffClassCheck)
	if result, known := c.checks.of(ctx, class); known {
		is.failed = result.err != nil
		switch {
		case result.err == nil:
			is.problem, is.unknown = result.problem, false
		case ctx.Err() != nil || runner.NotOurs(result.err):
			return result.err
		default:
			klog.FromContext(ctx).V(1).Info("Could not check the MachineClass", telemetry.KeyMachineClass, klog.KRef(class.Namespace, class.Name),
				"err", result.err)
		}
		is.next = result.next((is.problem != "" || is.failed) && len(w.Owned) == 0)
	}
	w.ClassProblem, w.ClassUnknown, w.MustCheckClass = is.problem, is.unknown, false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known(w.Set.UID).class = is
	return nil
}

// untilClassCheck returns when the class of a set is checked again; 0 if it is not.
func (c *Controller) untilClassCheck(set types.UID) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known(set); known.class.class != "" {
		return max(known.class.next.Sub(c.own.Now()), time.Millisecond)
	}
	return 0
}

// checked returns what a check of a class may depend on: not what a check itself writes.
func checked(class *v1alpha1.MachineClass) *v1alpha1.MachineClass {
	is := class.DeepCopy()
	is.ObjectMeta = metav1.ObjectMeta{UID: class.UID, DeletionTimestamp: class.DeletionTimestamp, Annotations: is.Annotations}
	delete(is.Annotations, v1alpha1.AnnotationUnknownFields)
	return is
}

// classChanged checks a class again for the sets that know of a problem with it.
func (c *Controller) classChanged(before, after *v1alpha1.MachineClass) {
	class := after
	if class == nil {
		class = before
	}
	if before != nil && after != nil && apiequality.Semantic.DeepEqual(checked(before), checked(after)) {
		return
	}
	c.checks.forget(objectcache.Key(class))
	for _, set := range c.cfg.View.Sets.In(class.Namespace) {
		is := machinefacts.MachineSetCondition(&set.Status, v1alpha1.MachineSetValid)
		if set.Spec.Template.Spec.Class.Name != class.Name || is == nil || is.Reason != v1alpha1.ReasonInvalidClass {
			continue
		}
		c.mu.Lock()
		c.known(set.UID).class.next = time.Time{}
		c.mu.Unlock()
		c.runner.Enqueue(objectcache.Key(set))
	}
}
