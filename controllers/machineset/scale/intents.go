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

// Intents are the decisions of a set that are not seen done yet. They are kept in one annotation of the set.
type Intents struct {
	// Set is the UID of the set whose decisions these are. On another one they are a copy, and no intents: the set was
	// restored from a backup, or made after another's likeness.
	Set types.UID `json:"set,omitempty"`
	// Next is the ordinal that the next new machine gets. It only grows.
	Next int64 `json:"next"`
	// Create holds the ordinals of machines that are to exist.
	Create []int64 `json:"create,omitempty"`
	// Delete holds the machines that are to go.
	Delete []Doomed `json:"delete,omitempty"`
}

// shown is how many bytes of an annotation that cannot be read are shown.
const shown = 256

// Doomed names a machine that is to be deleted.
type Doomed struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Failed says that it is to go because it has failed. If it recovers before it is deleted it stays: then it has no permit
	// to be replaced any more, and another may have one.
	Failed bool `json:"failed,omitempty"`
}

// spares reports whether a failed machine of a set is not to be deleted after all: it has recovered, or the set is frozen and
// could not replace it.
func (d Doomed) spares(set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return d.Failed && (m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || ready.IsFrozen(set))
}

// ReadIntents reads the intents of a set; a set without any, or with those of another, has the zero value. Errors: an annotation that somebody else
// has written. Since tenants can, it is carried out only as far as one of ours could go: there are never more than a burst.
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
		return Intents{}, fmt.Errorf("annotation %s: ordinals must not be negative, got %q; remove the annotation to have it written anew",
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

// write puts the intents on a set.
func (in Intents) write(set *v1alpha1.MachineSet) {
	in.Set = set.UID
	text, err := json.Marshal(in)
	if err != nil { // integers and strings always encode
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

// spares says that the machine was to go and, as it is now, does not have to.
func (in Intents) spares(set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && slices.ContainsFunc(in.Delete, func(d Doomed) bool { return d.UID == m.UID && d.spares(set, m) })
}
