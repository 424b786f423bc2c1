package machinefacts

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// MostIntents is how many machines a set has decided to make, and how many to delete, at the most before the first of them are seen
// done. An annotation with more was not written by a MachineSet controller.
const MostIntents = 100

// shown is how many bytes of an annotation that cannot be read are shown.
const shown = 256

// Intents are the decisions of a set that are not seen done yet. They are kept in one annotation of the set.
type Intents struct {
	// Set is the UID of the set whose decisions these are. On another one they are a copy, and no intents: the set was
	// restored from a backup, or cloned.
	Set types.UID `json:"set,omitempty"`
	// Next is the ordinal that the next new machine gets. It only grows.
	Next int64 `json:"next"`
	// Create holds the ordinals of machines that are to exist.
	Create []int64 `json:"create,omitempty"`
	// Delete holds the machines that are to be deleted.
	Delete []Doomed `json:"delete,omitempty"`
}

// Doomed names a machine that is to be deleted.
type Doomed struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Failed says that it is to be deleted because it has failed. If it recovers before it is deleted it stays: then it has no
	// disruption any more, and another machine may have one.
	Failed bool `json:"failed,omitempty"`
}

// ReadIntents reads the intents of a set; a set without any, or with those of another, has the zero value.
//
// Errors: an annotation that was not written by a MachineSet controller, as tenants can. A reader must not take that for no intents:
// what the set is about to make or delete is not known then. The MachineSet controller leaves such a set as it is, and a
// MachineDeployment with such a set is not resized, until the annotation is corrected or removed.
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
	if n := max(len(in.Create), len(in.Delete)); n > MostIntents {
		return Intents{}, fmt.Errorf("annotation %s: expected at most %d machines to create and to delete, got %d; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, MostIntents, n)
	}
	if in.Set != "" && in.Set != set.UID {
		return Intents{}, nil
	}
	return in, nil
}

// Write puts the intents on a set.
func (in Intents) Write(set *v1alpha1.MachineSet) {
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

// Clone returns a copy that shares nothing with the original.
func (in Intents) Clone() Intents {
	return Intents{Set: in.Set, Next: in.Next, Create: slices.Clone(in.Create), Delete: slices.Clone(in.Delete)}
}

// Dooms reports whether a machine is to be deleted.
func (in Intents) Dooms(uid types.UID) bool {
	return slices.ContainsFunc(in.Delete, func(d Doomed) bool { return d.UID == uid })
}

// Awaited returns the ordinals of the machines that are to exist and are not among those that are seen. They will be made even if
// the set is to be smaller by now, and deleted after that.
func Awaited[T metav1.Object](in Intents, set *v1alpha1.MachineSet, seen []T) []int64 {
	if len(in.Create) == 0 {
		return nil
	}
	made := SeenOrdinals(set, seen)
	return slices.DeleteFunc(slices.Clone(in.Create), func(o int64) bool { return made[o] })
}

// SeenOrdinals returns the ordinals of those of the machines that the set has made.
func SeenOrdinals[T metav1.Object](set *v1alpha1.MachineSet, seen []T) map[int64]bool {
	ordinals := make(map[int64]bool, len(seen))
	for _, m := range seen {
		if o, ok := OrdinalIn(set, m); ok {
			ordinals[o] = true
		}
	}
	return ordinals
}
