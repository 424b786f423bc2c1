package deletion

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

// HoldNamespaces has the annotations of Namespaces.
type HoldNamespaces interface {
	// Known reports whether the annotations are known, and Denied whether the right to read them is
	// missing.
	Known() bool
	Denied() bool
	Annotation(namespace, key string) (value string, ok bool)
	// OnChange calls f with each namespace whose annotations have changed, with "" if it may be any.
	OnChange(f func(namespace string))
}

// Holds has the holds of all namespaces. New returns one. It is safe for concurrent use.
type Holds struct {
	namespaces HoldNamespaces
	changes    []func(namespace string)

	mu sync.Mutex
	// fleet is the hold by the leader Lease as a text, "" if there is none. Without isRead there is no
	// leader Lease, or none was read yet.
	fleet  string
	isRead bool
}

// NewHolds returns Holds that do not know the leader Lease yet.
func NewHolds(namespaces HoldNamespaces) *Holds {
	h := &Holds{namespaces: namespaces}
	namespaces.OnChange(h.notify)
	return h
}

// OnChange adds a function that is called with every namespace in which deletions may be held now
// or may no longer be held; "" means all. f must return soon. Call OnChange before changes are
// reported.
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
	hasChanged := h.fleet != is || h.isRead != (lease != nil)
	h.fleet, h.isRead = is, lease != nil
	h.mu.Unlock()
	if hasChanged {
		h.notify("")
	}
}

// missingRight is a reason for which deletions are held, like an annotation.
const missingRight = "missing right to list and watch Namespaces, whose annotations may hold them"

// Held reports whether deletions in a namespace are held. why names the annotations and their
// reasons; it is "" while the only reason is that the Namespace or the leader Lease was not read
// yet, which is not worth a report.
func (h *Holds) Held(namespace string) (why string, held bool) {
	h.mu.Lock()
	reasons, isRead := []string{h.fleet}, h.isRead
	h.mu.Unlock()
	if h.namespaces.Denied() {
		reasons = append(reasons, missingRight)
	}
	value, _ := h.namespaces.Annotation(namespace, v1alpha1.AnnotationHoldDeletions)
	reasons = append(reasons, describe("Namespace "+namespace, value))
	var parts []string
	for _, reason := range reasons {
		if reason != "" {
			parts = append(parts, reason)
		}
	}
	return strings.Join(parts, "; "), len(parts) > 0 || !isRead || !h.namespaces.Known()
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
