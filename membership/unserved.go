package membership

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ShortestGap is the shortest time without a session that counts. A process that is restarted, and
// a slot that moves, take less.
const ShortestGap = time.Minute

// Gap is a time in which no session of the fleet lived, so that nothing was done for its objects.
// The zero value is none.
type Gap struct {
	// From is the last renewal before it, and To when a session began after it, each by the clock of
	// the control cluster.
	From, To time.Time
}

// IsZero reports whether there is no gap.
func (g Gap) IsZero() bool { return g.To.IsZero() }

// String returns the gap as the value of the annotation; "" for none.
func (g Gap) String() string {
	if g.IsZero() {
		return ""
	}
	return g.From.UTC().Format(time.RFC3339) + "/" + g.To.UTC().Format(time.RFC3339)
}

// ParseGap parses the annotation of a session Lease; "" is none. Errors: an invalid value.
func ParseGap(text string) (Gap, error) {
	if text == "" {
		return Gap{}, nil
	}
	from, to, _ := strings.Cut(text, "/")
	begin, err1 := time.Parse(time.RFC3339, from)
	end, err2 := time.Parse(time.RFC3339, to)
	if err1 != nil || err2 != nil || !begin.Before(end) {
		return Gap{}, fmt.Errorf("unserved time: expected two times in order and in RFC 3339, separated by a slash, got %q", text)
	}
	return Gap{From: begin, To: end}, nil
}

// LastGap returns the last gap as a session knows it that begins now, from the Leases of a list
// that was read before its first write: since the last renewal of any session, or else what other
// sessions have recorded. So each session knows it, whichever began first.
func LastGap(fleet string, leases []*coordinationv1.Lease, now time.Time) (last Gap) {
	var renewed time.Time
	for _, l := range leases {
		if _, is := ReplicaOfLease(fleet, l.Name); !is {
			continue
		}
		if l.Spec.RenewTime != nil && l.Spec.RenewTime.After(renewed) {
			renewed = l.Spec.RenewTime.Time
		}
		// One that ends in the future would keep machines from failing until then.
		if g, err := ParseGap(l.Annotations[v1alpha1.AnnotationUnserved]); err == nil && g.To.After(last.To) &&
			g.To.Before(now.Add(ShortestGap)) {
			last = g
		}
	}
	if !renewed.IsZero() && now.Sub(renewed) >= ShortestGap {
		return Gap{From: renewed, To: now}
	}
	return last
}
