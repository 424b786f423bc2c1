package disruption

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// maxDisruptions is how many permits stand on a root at the most. With more the annotations of an object would have no room for others.
const maxDisruptions = 1000

// shown is how many bytes of an annotation that cannot be read are shown.
const shown = 256

// Disruption allows that a machine is replaced. It stands on the machine's root until the machine is deleted, or healthy again.
type Disruption struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Since is when the machine entered the phase in which it got the permit. A permit that a cache still shows after the
	// machine has recovered is none for the next time.
	Since metav1.Time `json:"since"`
}

// disruptionOf is the permit of a machine as it is now.
func disruptionOf(m *v1alpha1.Machine) Disruption {
	return Disruption{Name: m.Name, UID: m.UID, Since: m.Status.CurrentStatus.LastUpdateTime}
}

// ReadDisruptions reads the permits that stand on a root. Errors: an annotation that somebody else has written.
func ReadDisruptions(root metav1.Object) ([]Disruption, error) {
	text, ok := root.GetAnnotations()[v1alpha1.AnnotationDisruptions]
	if !ok {
		return nil, nil
	}
	var disruptions []Disruption
	if err := json.Unmarshal([]byte(text), &disruptions); err != nil {
		return nil, fmt.Errorf("annotation %s: expected JSON like [{\"name\":\"m\",\"uid\":\"u\",\"since\":\"2026-01-02T03:04:05Z\"}], got %q: %w; remove the annotation to have it written anew",
			v1alpha1.AnnotationDisruptions, bounded.Text(text, shown), err)
	}
	if len(disruptions) > maxDisruptions {
		return nil, fmt.Errorf("annotation %s: expected at most %d permits, got %d; remove the annotation to have it written anew",
			v1alpha1.AnnotationDisruptions, maxDisruptions, len(disruptions))
	}
	return disruptions, nil
}

// WriteDisruptions puts permits on a root.
func WriteDisruptions(root metav1.Object, disruptions []Disruption) {
	annotations := root.GetAnnotations()
	if len(disruptions) == 0 {
		delete(annotations, v1alpha1.AnnotationDisruptions)
		root.SetAnnotations(annotations)
		return
	}
	text, err := json.Marshal(disruptions)
	if err != nil { // strings and times of this century always encode
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationDisruptions] = string(text)
	root.SetAnnotations(annotations)
}

// Allows says that one of the permits allows the machine to be replaced, as it is now.
func Allows(disruptions []Disruption, m *v1alpha1.Machine) bool {
	return slices.ContainsFunc(disruptions, func(p Disruption) bool { return p.UID == m.UID && p.appliesTo(m) })
}

// appliesTo says that the permit is good for the machine, which has the permit's UID, as it is now: in the phase in which it got
// it, or failed, which is what the permit is for.
func (p Disruption) appliesTo(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all others it is not to be replaced
	case v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdateFailed:
		return p.Since.Unix() == m.Status.CurrentStatus.LastUpdateTime.Unix() && !machinefacts.HasNoHealthTimeout(m)
	case v1alpha1.MachineFailed:
		return true
	}
	return false
}
