package scale

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/ready"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Intents are the decisions of a set whose effects are not observed yet. They are kept in one annotation of the set.
type Intents struct {
	// Set is the UID of the set that took the decisions. On another set they are a copy, and not intents: the set was
	// restored from a backup, or cloned.
	Set types.UID `json:"set,omitempty"`
	// Next is the ordinal that the next new machine gets. It only grows.
	Next int64 `json:"next"`
	// Create has the ordinals of machines to create.
	Create []int64 `json:"create,omitempty"`
	// Delete has the machines to delete.
	Delete []Doomed `json:"delete,omitempty"`
}

// shown is the number of bytes of an invalid annotation in an error.
const shown = 256

// Doomed names a machine to delete.
type Doomed struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Failed reports whether it is deleted because it has failed. If it recovers before it is deleted, it stays: then it has no
	// disruption any more, and another machine may have one.
	Failed bool `json:"failed,omitempty"`
}

// spares reports whether a failed machine of a set is not to be deleted after all: it has recovered, or the set is frozen and
// could not replace it.
func (d Doomed) spares(set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return d.Failed && (m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || ready.IsFrozen(set))
}

// ReadIntents returns the intents of a set; the zero value for a set without any, or with those of another. Errors: an invalid annotation.
// Tenants can write it, so it has effects only within the limits of the fleet's own intents: never more than a burst.
func ReadIntents(set *v1alpha1.MachineSet) (Intents, error) {
	var in Intents
	text, ok := set.Annotations[v1alpha1.AnnotationIntents]
	if !ok {
		return in, nil
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Intents{}, fmt.Errorf("annotation %s: expected JSON like {\"next\":3,\"create\":[2]}, got %q: %w; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, bounded.Text(text, shown), err)
	}
	if in.Next < 0 || slices.ContainsFunc(in.Create, func(o int64) bool { return o < 0 }) {
		return Intents{}, fmt.Errorf("annotation %s: expected ordinals of at least 0, got %q; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, bounded.Text(text, shown))
	}
	if n := max(len(in.Create), len(in.Delete)); n > burst {
		return Intents{}, fmt.Errorf("annotation %s: expected at most %d machines to create and to delete, got %d; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, burst, n)
	}
	if in.Set != "" && in.Set != set.UID {
		return Intents{}, nil
	}
	return in, nil
}

// write records the intents on a set.
func (in Intents) write(set *v1alpha1.MachineSet) {
	in.Set = set.UID
	text, err := json.Marshal(in)
	if err != nil { // integers and strings can always be encoded
		return
	}
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[v1alpha1.AnnotationIntents] = string(text)
}

func (in Intents) clone() Intents {
	return Intents{Set: in.Set, Next: in.Next, Create: slices.Clone(in.Create), Delete: slices.Clone(in.Delete)}
}

func (in Intents) dooms(uid types.UID) bool {
	return slices.ContainsFunc(in.Delete, func(d Doomed) bool { return d.UID == uid })
}

// spares reports whether the machine was to be deleted and, in its current state, is not any more.
func (in Intents) spares(set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && slices.ContainsFunc(in.Delete, func(d Doomed) bool { return d.UID == m.UID && d.spares(set, m) })
}
