package holds

import (
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// shown is the number of bytes of a reason that are shown: people write annotations of any length.
const shown = 200

// Namespaces has the annotations of Namespaces.
type Namespaces interface {
	// Known reports whether the annotations are known.
	Known() bool
	Annotation(namespace, key string) (value string, ok bool)
	// OnChange calls f with each namespace whose annotations have changed, with "" if it may be any.
	OnChange(f func(namespace string))
}

// Holds has the holds of all namespaces. New returns one. It is safe for concurrent use.
type Holds struct {
	namespaces Namespaces
	changes    []func(namespace string)

	mu    sync.Mutex
	fleet string // the hold by the leader Lease, as a text; "" if there is none
}

// New returns Holds without one of the leader Lease.
func New(namespaces Namespaces) *Holds {
	h := &Holds{namespaces: namespaces}
	namespaces.OnChange(h.notify)
	return h
}

// OnChange adds a function that is called with every namespace in which deletions may be held now or may no longer be held; "" means
// all. f must return soon. Call OnChange before changes are reported.
func (h *Holds) OnChange(f func(namespace string)) { h.changes = append(h.changes, f) }

func (h *Holds) notify(namespace string) {
	for _, f := range h.changes {
		f(namespace)
	}
}

// LeaderLease has to be called with each version of the leader Lease, and with nil when it is gone.
func (h *Holds) LeaderLease(lease *coordinationv1.Lease) {
	is := ""
	if lease != nil {
		is = describe("Lease "+lease.Namespace+"/"+lease.Name, lease.Annotations[v1alpha1.AnnotationHoldDeletions])
	}
	h.mu.Lock()
	was := h.fleet
	h.fleet = is
	h.mu.Unlock()
	if was != is {
		h.notify("")
	}
}

// Held reports whether deletions in a namespace are held. why names the annotations and their reasons; it is "" while the only reason
// is that the Namespace was not read yet, which is not worth a report.
func (h *Holds) Held(namespace string) (why string, held bool) {
	h.mu.Lock()
	reasons := []string{h.fleet}
	h.mu.Unlock()
	value, _ := h.namespaces.Annotation(namespace, v1alpha1.AnnotationHoldDeletions)
	reasons = append(reasons, describe("Namespace "+namespace, value))
	var parts []string
	for _, reason := range reasons {
		if reason != "" {
			parts = append(parts, reason)
		}
	}
	return strings.Join(parts, "; "), len(parts) > 0 || !h.namespaces.Known()
}

// describe returns a hold as a text; "" if the value holds nothing.
func describe(where, value string) string {
	switch value {
	case "", "false":
		return ""
	case "true":
		return fmt.Sprintf("annotation %s of %s", v1alpha1.AnnotationHoldDeletions, where)
	}
	return fmt.Sprintf("annotation %s of %s: %s", v1alpha1.AnnotationHoldDeletions, where, bounded.Text(value, shown))
}
