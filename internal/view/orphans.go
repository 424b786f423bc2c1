package view

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
)

// Orphans are the suspicions that a MachineClass records about the account that it uses.
type Orphans struct {
	Namespace string `json:"namespace"`
	Class     string `json:"class"`
	// Suspects is how many resources are suspected, and Approved how many of them a person has
	// approved to be deleted.
	Suspects int `json:"suspects"`
	Approved int `json:"approved,omitempty"`
	// Oldest is for how long leaders have observed the oldest one.
	Oldest metav1.Duration `json:"oldest"`
}

// OrphansOf returns what the classes of a snapshot record about orphans. Text that does not decode
// is no suspicion.
func OrphansOf(s Snapshot) []Orphans {
	all := []Orphans{}
	for _, class := range byName(s.Classes) {
		text := class.Annotations[v1alpha1.AnnotationOrphans]
		var record decide.Record
		if text == "" || json.Unmarshal([]byte(text), &record) != nil {
			continue
		}
		o := Orphans{Namespace: class.Namespace, Class: class.Name, Suspects: len(record.Suspects) + max(record.More, 0)}
		for _, entry := range record.Suspects {
			o.Oldest.Duration = max(o.Oldest.Duration, min(entry.Duration(), mostOrphanAge))
			if entry.Approved {
				o.Approved++
			}
		}
		if o.Suspects > 0 {
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b Orphans) int { return b.Suspects - a.Suspects })
	return all
}

// mostOrphanAge bounds an age that any client may have written.
const mostOrphanAge = 10 * 365 * 24 * time.Hour
