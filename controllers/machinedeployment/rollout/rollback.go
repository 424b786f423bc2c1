package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// rollBack sets the template of an earlier revision on the deployment, and removes the request for
// it, in one write. What follows is a rollout like any other, to a set that exists already.
func rollBack(w World) Verdict {
	d := w.Deployment.DeepCopy()
	d.Spec.RollbackTo = nil
	v := Verdict{Do: Save, Deployment: d}
	to, set := findRevision(w.Owned, w.Deployment.Spec.RollbackTo.Revision)
	switch {
	case w.Done.RollbackRefused != "":
		v.Events = []Event{{Reason: v1alpha1.EventRollbackRefused, Message: fmt.Sprintf("Rollback ignored: the API server refuses the template of revision %s: %s; correct a copy of it, and set it as spec.template",
			to, w.Done.RollbackRefused)}}
	case set == nil:
		v.Events = []Event{{Reason: v1alpha1.EventRollbackRevisionNotFound, Message: "Rollback ignored: there is no revision " + to}}
	case sameTemplate(&set.Spec.Template, &d.Spec.Template):
		v.Events = []Event{{Reason: v1alpha1.EventRollbackTemplateUnchanged, Message: "Rollback ignored: the template is already that of revision " + to}}
	default:
		restore(d, set)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationRevision, strconv.FormatInt(newRevision(w.Owned, set), 10))
		v.Events = []Event{{Reason: v1alpha1.EventRollback, Message: fmt.Sprintf("Rolled back to revision %s, machine set %s", to, set.Name)}}
	}
	return v
}

// findRevision returns the set of a revision, and what the revision is called; 0 is the one before
// the current.
func findRevision(owned []*v1alpha1.MachineSet, desired int64) (called string, set *v1alpha1.MachineSet) {
	standing := slices.DeleteFunc(slices.Clone(owned), func(s *v1alpha1.MachineSet) bool { return s.DeletionTimestamp != nil })
	if desired == 0 {
		slices.SortStableFunc(standing, func(a, b *v1alpha1.MachineSet) int {
			return cmp.Or(cmp.Compare(machinefacts.Revision(b), machinefacts.Revision(a)), machinefacts.CompareAge(b, a))
		})
		if len(standing) < 2 {
			return "before the current one", nil
		}
		return fmt.Sprint(machinefacts.Revision(standing[1])), standing[1]
	}
	for _, s := range standing {
		if machinefacts.Revision(s) == desired {
			return fmt.Sprint(desired), s
		}
	}
	return fmt.Sprint(desired), nil
}

// restore copies template and annotations of a set to the deployment. Annotations that only the
// deployment has stay.
func restore(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) {
	template := set.Spec.Template.DeepCopy()
	delete(template.Labels, v1alpha1.LabelMachineTemplateHash)
	d.Spec.Template = *template
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	earlier := maps.Clone(set.Annotations)
	maps.DeleteFunc(earlier, func(key, _ string) bool { return staysOnDeployment(key) || staysOnSet(key) })
	maps.Copy(d.Annotations, earlier)
}

// staysOnSet lists the annotations that a rollback does not bring back: those that are about the
// set itself.
func staysOnSet(key string) bool {
	switch key {
	case v1alpha1.AnnotationIntents, v1alpha1.AnnotationTraceparent, v1alpha1.AnnotationRolling:
		return true
	}
	return false
}
