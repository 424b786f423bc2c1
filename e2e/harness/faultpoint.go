package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FaultPoint stops one request or driver call between its check and its send, on whichever replica
// makes it. A test that looks up the owner of a slot and stops a request there waits without end
// when the leader has moved the slot meanwhile.
//
// Release on a replica ends all of its fault points, so a lab has one FaultPoint at a time.
type FaultPoint struct {
	lab      *Lab
	match    string
	replicas []string
}

// Stopped describes the request or call that a FaultPoint has stopped. While it is stopped the slot
// cannot be handed over: it is in flight. That lasts for 30 s; then the replica cancels what is in
// flight, and ends 15 s later.
type Stopped struct {
	// Replica sent the request, in the session Session.
	Replica, Session string
	// What names the request, and the ownership that it is sent under.
	What string
}

// StopNext stops the next request or driver call whose name contains match; see stopNextOn for the
// names. A replica that starts later stops nothing.
func (l *Lab) StopNext(ctx context.Context, match string) (*FaultPoint, error) {
	replicas, err := l.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	p := &FaultPoint{lab: l, match: match, replicas: replicas}
	for _, replica := range replicas {
		if err := l.stopNextOn(ctx, replica, match); err != nil {
			return nil, errors.Join(err, p.Release(context.WithoutCancel(ctx)))
		}
	}
	return p, nil
}

// Wait waits until some replica has stopped. From then on the others do not stop.
func (p *FaultPoint) Wait(ctx context.Context) (at Stopped, err error) {
	err = Eventually(ctx, fmt.Sprintf("one of %q stops at %q", p.replicas, p.match), func(ctx context.Context) (err error) {
		at, err = p.find(ctx)
		return err
	})
	if err != nil {
		return Stopped{}, err
	}
	for _, replica := range p.replicas {
		if replica != at.Replica {
			err = errors.Join(err, p.lab.Release(ctx, replica))
		}
	}
	return at, err
}

// find returns what was stopped. A replica that does not answer may be about to start.
func (p *FaultPoint) find(ctx context.Context) (Stopped, error) {
	var errs []error
	for _, replica := range p.replicas {
		held, err := p.lab.Stopped(ctx, replica)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(held, func(what string) bool { return strings.Contains(what, p.match) })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s has stopped at %q", replica, held))
			continue
		}
		view, err := p.lab.Slots(ctx, replica)
		return Stopped{Replica: replica, Session: view.Session, What: held[i]}, err
	}
	return Stopped{}, errors.Join(errs...)
}

// Release resumes what was stopped, and ends this fault point on all replicas. Errors: a replica
// does not answer.
func (p *FaultPoint) Release(ctx context.Context) (err error) {
	for _, replica := range p.replicas {
		err = errors.Join(err, p.lab.Release(ctx, replica))
	}
	return err
}
