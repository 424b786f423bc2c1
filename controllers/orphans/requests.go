package orphans

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// request is the request of a MachineClass for a sweep.
type request struct {
	class *v1alpha1.MachineClass
	scope string // its key; "" where the class has none that can be listed
}

// extra are the sweeps of a namespace in addition to the usual ones: those that serve a request,
// and those that confirm surplus VMs.
type extra struct {
	last time.Time // when one last began; zero for never
	due  time.Time // when the next one confirms; zero for none
}

// Requested sweeps a namespace soon, in which a MachineClass requests that. It returns at once, and
// has no effect while the session does not lead: the next leader finds the request on the class.
func (o *Controller) Requested(namespace string) {
	o.runner.EnqueueAfter(namespace, o.spaced(namespace, 0))
}

// spaced returns after which time a sweep begins, in addition to the usual ones, that is wanted
// after some time.
func (o *Controller) spaced(namespace string, wanted time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := time.Duration(-1)
	if at := o.extra[namespace].last; !at.IsZero() {
		last = o.cfg.Clock.Since(at)
	}
	return o.rules.spaced(wanted, last, o.spacing())
}

// spacing is the shortest time between two sweeps of a namespace in addition to the usual ones.
func (o *Controller) spacing() time.Duration { return o.cfg.Period / plansInPeriod }

// addRequest records the request of a class, if it has one.
func (s *sweep) addRequest(class *v1alpha1.MachineClass, scope string) {
	if class.Annotations[v1alpha1.AnnotationSweepRequested] != "" {
		s.requests = append(s.requests, request{class, scope})
	}
}

// begins records that a sweep begins, if it serves requests or confirms.
func (s *sweep) begins() {
	now := s.cfg.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.extra[s.namespace]
	confirms := !is.due.IsZero() && !now.Before(is.due)
	if len(s.requests) > 0 || confirms {
		s.extra[s.namespace] = extra{last: now}
	}
}

// endRequests removes the requests whose scope was listed and recorded. That of a class that has
// changed meanwhile stays, for another sweep: it may be a new one.
func (s *sweep) endRequests(ctx context.Context) error {
	var errs []error
	for _, r := range s.requests {
		class, done := r.class, r.scope == ""
		for _, sc := range s.scopes {
			done = done || sc.key == r.scope && sc.recorded
			if sc.class.Name == class.Name {
				class = sc.class // as it was written last
			}
		}
		if !done {
			continue
		}
		if class.Annotations[v1alpha1.AnnotationSweepRequested] != r.class.Annotations[v1alpha1.AnnotationSweepRequested] {
			s.requested = true // by a request that came during the sweep
			continue
		}
		_, err := s.annotate(ctx, class, map[string]any{v1alpha1.AnnotationSweepRequested: nil})
		if apierrors.IsConflict(err) {
			s.requested = true
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the request for a sweep from MachineClass %s: %w", class.Name, err))
		}
	}
	return errors.Join(errs...)
}

// again returns after which time the next sweep begins in addition to the usual ones: one that
// confirms surplus VMs, or serves a request that stays. 0 where none is needed.
func (s *sweep) again() time.Duration {
	after := s.confirms()
	if s.requested {
		if served := s.spaced(s.namespace, 0); after == 0 || served < after {
			return served
		}
	}
	return after
}

// confirms returns after which time the sweep begins that confirms surplus VMs, and records it; 0
// where none is needed.
func (s *sweep) confirms() (after time.Duration) {
	for _, sc := range s.scopes {
		if !sc.recorded {
			continue
		}
		if due := s.rules.due(sc.suspects, sc.before, sc.stored, s.rules.age); due > 0 && (after == 0 || due < after) {
			after = due
		}
	}
	if after == 0 {
		return 0
	}
	after = s.spaced(s.namespace, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra[s.namespace] = extra{last: s.extra[s.namespace].last, due: s.cfg.Clock.Now().Add(after)}
	return after
}
