package machinefacts

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// MostIntents is the maximum number of machines that a set has recorded for creation, and of those
// for deletion, that are not observed yet. An annotation with more was not written by a MachineSet
// controller.
const MostIntents = 100

// shown is the number of bytes of an invalid annotation in an error.
const shown = 256

// Intents are the decisions of a set that are not observed yet. They are recorded in one annotation
// of the set.
type Intents struct {
	// Set is the UID of the set whose decisions these are. On another set they are a copy without
	// effect: the set was restored from a backup, or cloned.
	Set types.UID `json:"set,omitempty"`
	// Next is the ordinal that the next new machine gets. It only increases.
	Next int64 `json:"next"`
	// Create holds the ordinals of the machines that must be created.
	Create []int64 `json:"create,omitempty"`
	// Delete holds the machines that must be deleted.
	Delete []Deletion `json:"delete,omitempty"`
	// Leaving holds machines that are being deleted, and that do not have the reason recorded on them
	// yet.
	Leaving []Deletion `json:"leaving,omitempty"`
	// Losses are the failures of machines in a row; nil when none has failed. They are replaced, and
	// never changed.
	Losses *Losses `json:"losses,omitempty"`
}

// Deletion identifies a machine that is recorded for deletion.
type Deletion struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Failed reports whether it is deleted because it has failed, or could not be created from an
	// earlier MachineClass. If it recovers before, it is not deleted: then it has no disruption any
	// more, and another machine may have one.
	Failed bool `json:"failed,omitempty"`
	// Why the machine is deleted. Reason returns it.
	Why receipt.Reason `json:"why,omitzero"`
}

// ReadIntents returns the intents of a set; the zero value for a set without any, or with those of
// another set.
//
// Errors: an annotation that was not written by a MachineSet controller; tenants can write one. A
// caller must not treat that as no intents: what the set is about to create or delete is not known.
// The MachineSet controller does not act on such a set, and a MachineDeployment with such a set is
// not resized, until the annotation is corrected or removed.
func ReadIntents(set *v1alpha1.MachineSet) (Intents, error) {
	var in Intents
	text, ok := set.Annotations[v1alpha1.AnnotationIntents]
	if !ok {
		return in, nil
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Intents{},
			fmt.Errorf("annotation %s: expected JSON like {\"next\":3,\"create\":[2]}, got %q: %w; remove the annotation to have it written anew",
				v1alpha1.AnnotationIntents, bounded.Text(text, shown), err)
	}
	if in.Next < 0 || slices.ContainsFunc(in.Create, func(o int64) bool { return o < 0 }) {
		return Intents{}, fmt.Errorf("annotation %s: ordinals must not be negative, got %q; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, bounded.Text(text, shown))
	}
	if n := max(len(in.Create), len(in.Delete), len(in.Leaving)); n > MostIntents {
		return Intents{}, fmt.Errorf(
			"annotation %s: expected at most %d machines to create, to delete and leaving, got %d; remove the annotation to have it written anew",
			v1alpha1.AnnotationIntents, MostIntents, n,
		)
	}
	if in.Set != "" && in.Set != set.UID {
		return Intents{}, nil
	}
	return in, nil
}

// Write records the intents on a set.
func (in Intents) Write(set *v1alpha1.MachineSet) {
	in.Set = set.UID
	text, err := json.Marshal(in)
	if err != nil { // integers and strings always encode
		return
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationIntents, string(text))
}

// Clone returns a copy that shares nothing with the original.
func (in Intents) Clone() Intents {
	in.Create, in.Delete, in.Leaving = slices.Clone(in.Create), slices.Clone(in.Delete), slices.Clone(in.Leaving)
	return in
}

// Deletes reports whether a machine is recorded for deletion.
func (in Intents) Deletes(uid types.UID) bool {
	return slices.ContainsFunc(in.Delete, func(d Deletion) bool { return d.UID == uid })
}

// Reason returns why a machine is deleted, or was; known is false for a machine that is not
// recorded. Clients may have written the annotation: a rule that the fleet does not have is
// replaced.
func (in Intents) Reason(uid types.UID) (why receipt.Reason, known bool) {
	all := slices.Concat(in.Delete, in.Leaving)
	i := slices.IndexFunc(all, func(d Deletion) bool { return d.UID == uid })
	if i < 0 {
		return receipt.Reason{}, false
	}
	d := all[i]
	switch {
	case d.Why.IsValid():
		return receipt.Because(d.Why.Rule, d.Why.Evidence), true
	case d.Failed:
		return receipt.Because(receipt.Unhealthy, "recorded without a reason"), true
	}
	return receipt.Because(receipt.ScaledDown, "recorded without a reason"), true
}

// ParentDeleted returns the reason of the deletion of a machine whose set is being deleted.
func ParentDeleted(set *v1alpha1.MachineSet) receipt.Reason {
	return receipt.Because(receipt.ParentDeleted,
		fmt.Sprintf("MachineSet %s was deleted at %s", set.Name, set.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// Awaited returns the ordinals of the machines that are recorded for creation and are not among
// those that are seen. They are created even if the set has fewer replicas by now, and deleted
// after that.
func Awaited[T metav1.Object](in Intents, set *v1alpha1.MachineSet, seen []T) []int64 {
	if len(in.Create) == 0 {
		return nil
	}
	created := seenOrdinals(set, seen)
	return slices.DeleteFunc(slices.Clone(in.Create), func(o int64) bool { return created[o] })
}

// seenOrdinals returns the ordinals of those of the machines that the set has created.
func seenOrdinals[T metav1.Object](set *v1alpha1.MachineSet, seen []T) map[int64]bool {
	ordinals := make(map[int64]bool, len(seen))
	for _, m := range seen {
		if o, ok := OrdinalIn(set, m); ok {
			ordinals[o] = true
		}
	}
	return ordinals
}
