package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Rollout is the state of the rollout of a MachineDeployment.
type Rollout struct {
	Object

	// Done means that all machines have the template and are available; Failed that it has made no
	// progress for its deadline, or cannot begin. With neither it is under way.
	Done   bool `json:"done"`
	Failed bool `json:"failed"`
	// UnderWay means that machines get a new template; machines may also be not available without it.
	UnderWay bool `json:"underWay,omitempty"`
	Paused   bool `json:"paused,omitempty"`
	// Text is a sentence about what has happened and what is awaited.
	Text string `json:"text"`
	// Stalled has reason and message of the condition RolloutStalled; "" without it.
	Stalled string    `json:"stalled,omitempty"`
	Since   time.Time `json:"since,omitzero"`

	Revision  int64 `json:"revision,omitempty"`
	Desired   int32 `json:"desired"`
	Total     int32 `json:"total"`
	Updated   int32 `json:"updated"`
	Available int32 `json:"available"`
}

// RolloutOf returns the state of a rollout. owned are the sets of the deployment.
func RolloutOf(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) Rollout {
	status := d.Status
	r := Rollout{
		Object: objectOf(KindDeployment, d), Paused: d.Spec.Paused, Desired: d.Spec.Replicas, Total: status.Replicas,
		Updated: status.UpdatedReplicas, Available: status.AvailableReplicas,
	}
	_, r.UnderWay = rollout.UnderWay(d, owned)
	if set := rollout.NewSet(d, owned); set != nil {
		r.Revision = machinefacts.Revision(set)
	}
	if c := machinefacts.MachineDeploymentCondition(&status, v1alpha1.MachineDeploymentRolloutStalled); c != nil && c.Status == "True" {
		r.Stalled, r.Since = c.Reason+": "+lifecycle.CloudText(c.Message), c.LastTransitionTime.Time
	}
	valid := machinefacts.ConditionOfDeployment(&status, v1alpha1.MachineDeploymentValid)
	progressing := machinefacts.ConditionOfDeployment(&status, v1alpha1.MachineDeploymentProgressing)
	name := "machinedeployment " + d.Name
	switch {
	case valid.Status == "False" && valid.Reason != v1alpha1.ReasonInvalidClass && valid.Reason != v1alpha1.ReasonTargetUnavailable:
		r.Failed, r.Text = true, fmt.Sprintf("%s is not reconciled: %s: %s", name, valid.Reason, lifecycle.CloudText(valid.Message))
	case status.ObservedGeneration < d.Generation:
		r.Text = fmt.Sprintf("%s: waiting for the spec to be observed", name)
	case progressing.Status == "False":
		r.Failed, r.Text = true, fmt.Sprintf("%s: %s: %s", name, progressing.Reason, lifecycle.CloudText(progressing.Message))
	case r.Updated < r.Desired:
		r.Text = fmt.Sprintf("%s: waiting for new machines: %d of %d have the template", name, r.Updated, r.Desired)
	case r.Total > r.Updated:
		r.Text = fmt.Sprintf("%s: waiting for old machines to be gone: %d left", name, r.Total-r.Updated)
	case r.Available < r.Updated:
		r.Text = fmt.Sprintf("%s: waiting for new machines to be available: %d of %d are", name, r.Available, r.Updated)
	default:
		r.Done, r.Text = true, fmt.Sprintf("%s is rolled out", name)
		return r
	}
	if r.Paused {
		r.Text += "; it is paused: resume it with kubectl mcf rollout resume " + d.Name
	}
	return r
}

// History has the revisions of a MachineDeployment.
type History struct {
	Object

	Revisions []Revision `json:"revisions"`
}

// Revision is a MachineSet of a MachineDeployment.
type Revision struct {
	Revision int64 `json:"revision"`
	// Before are the revisions that the set was before.
	Before    string    `json:"before,omitempty"`
	Set       string    `json:"set"`
	Current   bool      `json:"current,omitempty"`
	Class     string    `json:"class"`
	Desired   int32     `json:"desired"`
	Available int32     `json:"available"`
	Created   time.Time `json:"created"`
	// Cause is the annotation kubernetes.io/change-cause of the set.
	Cause    string                       `json:"cause,omitempty"`
	Template v1alpha1.MachineTemplateSpec `json:"template"`
}

// changeCause is the annotation by which people say why they changed a template.
const changeCause = "kubernetes.io/change-cause"

// HistoryOf returns the revisions of a deployment, the oldest first. owned are its sets.
func HistoryOf(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) History {
	h, newSet := History{Object: objectOf(KindDeployment, d), Revisions: []Revision{}}, rollout.NewSet(d, owned)
	for _, set := range owned {
		h.Revisions = append(h.Revisions, Revision{
			Revision: machinefacts.Revision(set), Before: set.Annotations[v1alpha1.AnnotationRevisionHistory], Set: set.Name, Current: set == newSet,
			Class: set.Spec.Template.Spec.Class.Name, Desired: set.Spec.Replicas, Available: set.Status.AvailableReplicas,
			Created: set.CreationTimestamp.Time, Cause: set.Annotations[changeCause], Template: set.Spec.Template,
		})
	}
	slices.SortFunc(h.Revisions, func(a, b Revision) int { return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Set, b.Set)) })
	return h
}

// Find returns a revision by its number, and 0 is the one before the current one. Errors: there is
// none; it names those that there are.
func (h History) Find(number int64) (Revision, error) {
	if number == 0 {
		var before []Revision
		for _, r := range h.Revisions {
			if !r.Current {
				before = append(before, r)
			}
		}
		if len(before) == 0 {
			return Revision{}, fmt.Errorf("machinedeployment %s has no revision before the current one; revisionHistoryLimit has how many are kept",
				h.Name)
		}
		return before[len(before)-1], nil
	}
	var numbers []string
	for _, r := range h.Revisions {
		if r.Revision == number {
			return r, nil
		}
		numbers = append(numbers, fmt.Sprint(r.Revision))
	}
	return Revision{}, fmt.Errorf("machinedeployment %s has no revision %d; it has %s", h.Name, number,
		cmp.Or(strings.Join(numbers, ", "), "none"))
}
