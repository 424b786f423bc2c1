package lifecycle

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// How long a machine whose processing has panicked is set aside: the first time, doubled each time,
// up to the longest.
const (
	firstSetAside   = time.Minute
	longestSetAside = time.Hour
)

// mostFault is how many bytes of the message of a panic are stored on a machine.
const mostFault = 200

// setAsideNote is why a machine is set aside. It is stored on the machine, so that a replica that
// takes the machine over does not repeat the panic at once.
type setAsideNote struct {
	Times int             `json:"times"`
	Until time.Time       `json:"until"`
	Rest  metav1.Duration `json:"rest"`
	// Generation is that of the machine which could not be processed. With another one it is tried at
	// once.
	Generation int64  `json:"generation"`
	Fault      string `json:"fault"`
}

// readSetAside returns what is stored on the machine; the zero value when there is nothing about
// its current generation.
func readSetAside(m *v1alpha1.Machine) setAsideNote {
	var a setAsideNote
	if json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationSetAside]), &a) != nil || a.Generation != m.Generation {
		return setAsideNote{}
	}
	return a
}

// SetAside returns the value of AnnotationSetAside for a machine whose processing has panicked.
// first reports whether it is the first time in a row.
func SetAside(m *v1alpha1.Machine, now time.Time, fault string) (value string, first bool) {
	a := readSetAside(m)
	a.Times++
	a.Rest.Duration = min(max(2*a.Rest.Duration, firstSetAside), longestSetAside)
	a.Until, a.Generation, a.Fault = now.Add(a.Rest.Duration).UTC(), m.Generation, bounded.Text(fault, mostFault)
	text, err := json.Marshal(a)
	if err != nil { // times and strings always encode
		return "", false
	}
	return string(text), a.Times == 1
}

// WhileSetAside returns the error of a machine that is set aside, and for how long it is; nil if it
// is not set aside, or not any more.
func WhileSetAside(m *v1alpha1.Machine, now time.Time) (cause *PassError, wait time.Duration) {
	a := readSetAside(m)
	wait = a.Until.Sub(now)
	if wait <= 0 || wait > 2*longestSetAside { // the clock of the writer may have differed
		return nil, 0
	}
	return &PassError{Code: driver.Internal, Message: fmt.Sprintf(
		"Processing this machine panicked %d times in a row: %s. This is a defect of the fleet or of its driver. "+
			"The machine is not processed until %s or a change of its spec",
		a.Times, a.Fault, a.Until.Format(time.RFC3339))}, wait
}

// WasSetAside returns the time in which a machine was set aside last, as an outage that has ended:
// nothing was done for it, so that time does not count for its deadlines.
func WasSetAside(m *v1alpha1.Machine, now time.Time) reach.Fact {
	a := readSetAside(m)
	if a.Rest.Duration <= 0 || a.Until.After(now) {
		return reach.Fact{}
	}
	return reach.Fact{From: a.Until.Add(-a.Rest.Duration), Back: a.Until}
}

// EndSetAside adds to a verdict that rests that a machine is not set aside any more: its spec has
// changed, or it was processed without a panic for as long as it had been set aside, without a time
// in which nothing was processed.
func EndSetAside(w World, v Verdict) Verdict {
	if _, stands := w.Machine.Annotations[v1alpha1.AnnotationSetAside]; !stands {
		return v
	}
	a := readSetAside(w.Machine)
	if left := w.Reach.Extend(a.Until, a.Until.Add(a.Rest.Duration)).Sub(w.Now); left > 0 {
		v.Wake = machinefacts.Sooner(v.Wake, left)
		return v
	}
	if v.Machine == nil {
		v.Machine = w.Machine.DeepCopy()
	}
	delete(v.Machine.Annotations, v1alpha1.AnnotationSetAside)
	return v
}
