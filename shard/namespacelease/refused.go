package namespacelease

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

// Refusal is why the fleet does not serve a namespace; the zero value means that it may.
type Refusal struct {
	// Other is the holder of the Leases that keeps the fleet out.
	Other string
	// Unselected is true for a namespace that is not selected, and whose Leases no manager holds.
	Unselected bool
}

// refusal is why a namespace is not served, since when, and the roots on which it was reported.
type refusal struct {
	why   Refusal
	since time.Time
	roots map[types.UID]bool
}

// refusalOf returns what is reported: another holder in a namespace that is not selected is as
// intended.
func refusalOf(verdict policy.Verdict, selected policy.Selection) Refusal {
	if selected == policy.NotSelected {
		return Refusal{Unselected: verdict.Unheld}
	}
	return Refusal{Other: verdict.Other}
}

// report reports once why a namespace is not served; the zero value means that it may be. That it
// is not selected is reported only when that lasts: the other fleet may be about to acquire the
// Leases.
func (l *NamespaceLeases) report(refused Key, why Refusal) {
	l.mu.Lock()
	known := l.reported[refused].why
	if why == (Refusal{}) {
		l.forget(refused.Namespace)
	} else if why != known {
		l.reported[refused] = refusal{why: why, since: l.cfg.Clock.Now()}
	}
	l.mu.Unlock()
	switch {
	case why == known:
	case why.Unselected:
		l.runner.EnqueueAfter(refused, policy.Unchanged)
	default:
		l.reportRoots(refused)
	}
}

// reportRoots reports why the namespace is not served on roots on which that was not reported yet.
func (l *NamespaceLeases) reportRoots(refused Key) {
	l.mu.Lock()
	was, ok := l.reported[refused]
	l.mu.Unlock()
	if !ok || was.why.Unselected && l.cfg.Clock.Since(was.since) < policy.Unchanged {
		return
	}
	roots := l.cfg.Refused(refused, was.why, was.roots)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.reported[refused].why != was.why:
	case was.why.Unselected && len(roots) == 0:
		delete(l.reported, refused)
	default:
		l.reported[refused] = refusal{was.why, was.since, roots}
	}
}

// forget removes the reported holders of a namespace. The caller holds the lock.
func (l *NamespaceLeases) forget(namespace string) {
	maps.DeleteFunc(l.reported, func(key Key, _ refusal) bool { return key.Namespace == namespace })
}

// CountRefused returns the number of namespaces with roots of this replica whose Leases another
// manager holds.
func (l *NamespaceLeases) CountRefused() (count int) {
	l.mu.Lock()
	namespaces := map[string]bool{}
	for key := range l.reported {
		namespaces[key.Namespace] = true
	}
	l.mu.Unlock()
	for namespace := range namespaces {
		selected := l.selected(namespace)
		if leases, _ := l.see(namespace); selected != policy.NotSelected && l.keptOut(leases, selected).Other != "" {
			count++
		}
	}
	return count
}

// isReported reports whether it is reported why a namespace is not served, or is about to be.
func (l *NamespaceLeases) isReported(key Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.reported[key]
	return ok
}

// CountUnselected returns the number of namespaces with roots of this replica that are not
// selected, and whose Leases no manager has held for policy.Unchanged.
func (l *NamespaceLeases) CountUnselected() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	namespaces := map[string]bool{}
	for key, refused := range l.reported {
		if refused.why.Unselected && len(refused.roots) > 0 {
			namespaces[key.Namespace] = true
		}
	}
	return len(namespaces)
}
