package disruption

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// maxDisruptions is the maximum number of disruptions on a root. More would leave no room for other
// annotations of the object.
const maxDisruptions = 1000

// shown is the number of bytes of an invalid annotation in an error.
const shown = 256

// Disruption allows a machine to be replaced. It is recorded on the machine's root until the
// machine is deleted, or healthy again.
type Disruption struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Since is when the machine entered the phase in which it got the disruption. A disruption that a
	// cache still has after the machine has recovered is not valid for the next failure.
	Since metav1.Time `json:"since"`
}

// disruptionOf returns the disruption of a machine in its current state.
func disruptionOf(m *v1alpha1.Machine) Disruption {
	return Disruption{Name: m.Name, UID: m.UID, Since: m.Status.CurrentStatus.LastUpdateTime}
}

// Key identifies the replacement that the disruption allows: the same machine's next failure has
// another one.
func (d Disruption) Key() string { return fmt.Sprintf("%s@%d", d.UID, d.Since.Unix()) }

// ReadDisruptions returns the disruptions that are recorded on a root. Errors: an annotation that
// another client has written.
func ReadDisruptions(root metav1.Object) ([]Disruption, error) {
	text, ok := root.GetAnnotations()[v1alpha1.AnnotationDisruptions]
	if !ok {
		return nil, nil
	}
	var disruptions []Disruption
	if err := json.Unmarshal([]byte(text), &disruptions); err != nil {
		return nil, fmt.Errorf("annotation %s: expected JSON like [{\"name\":\"m\",\"uid\":\"u\",\"since\":\"2026-01-02T03:04:05Z\"}], got %q: "+
			"%w; remove the annotation to have it written anew",
			v1alpha1.AnnotationDisruptions, bounded.Text(text, shown), err)
	}
	if len(disruptions) > maxDisruptions {
		return nil, fmt.Errorf("annotation %s: expected at most %d disruptions, got %d; remove the annotation to have it written anew",
			v1alpha1.AnnotationDisruptions, maxDisruptions, len(disruptions))
	}
	return disruptions, nil
}

// WriteDisruptions records disruptions on a root.
func WriteDisruptions(root metav1.Object, disruptions []Disruption) {
	annotations := root.GetAnnotations()
	if len(disruptions) == 0 {
		delete(annotations, v1alpha1.AnnotationDisruptions)
		root.SetAnnotations(annotations)
		return
	}
	text, err := json.Marshal(disruptions)
	if err != nil { // strings and times of this century can always be encoded
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationDisruptions] = string(text)
	root.SetAnnotations(annotations)
}

// Allows reports whether one of the disruptions allows the machine to be replaced, in its current
// state.
func Allows(disruptions []Disruption, m *v1alpha1.Machine) bool {
	return slices.ContainsFunc(disruptions, func(d Disruption) bool { return d.UID == m.UID && d.appliesTo(m) })
}

// appliesTo reports whether the disruption is valid for the machine, which has the disruption's
// UID, in its current state: in the phase in which the machine got it, or in the phase Failed,
// which the disruption allows.
func (d Disruption) appliesTo(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all other phases it is not replaced
	case v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdateFailed:
		return d.Since.Unix() == m.Status.CurrentStatus.LastUpdateTime.Unix() && !machinefacts.HasNoHealthTimeout(m)
	case v1alpha1.MachineFailed:
		return true
	}
	return false
}
