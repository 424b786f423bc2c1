package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// maxActions bounds one pass. No controller has a pass with as many actions; more would be a cycle in its decisions.
const maxActions = 32

// Verdict is a decision about an object.
type Verdict interface {
	// Next returns the name of the action to take. rest reports whether there is none left, so that the pass ends.
	Next() (action string, rest bool)
}

// Pass takes the actions that a controller decides on for one key: it decides, acts, and decides again on the result of the
// action, until a verdict rests. W is the world that the decisions are made on; the functions share it, so it is a pointer.
// Decide, Act and Rest are required.
type Pass[W any, V Verdict] struct {
	// Decide returns the verdict on a world.
	Decide func(world W) V
	// Act takes the action of a verdict and records its result in the world. A wait greater than 0 ends the pass: the action cannot be
	// taken now, and the key is reconciled again after the wait.
	Act func(ctx context.Context, world W, verdict V) (wait time.Duration, err error)
	// Rest ends the pass with the verdict that rests.
	Rest func(ctx context.Context, world W, verdict V) (Result, error)
	// Defers reports whether an error of the verdict's action ends the pass only after Rest, because the object has to show it. Nil
	// means that each error ends the pass at once.
	Defers func(verdict V) bool
}

// Run runs the pass on a world.
func (p Pass[W, V]) Run(ctx context.Context, world W) (Result, error) {
	log := klog.FromContext(ctx).V(4)
	var deferred []error
	var action string
	for range maxActions {
		verdict := p.Decide(world)
		var rest bool
		action, rest = verdict.Next()
		log.Info("Decided", "action", action)
		if rest {
			result, err := p.Rest(ctx, world, verdict)
			return result, errors.Join(append(deferred, err)...)
		}
		wait, err := p.Act(ctx, world, verdict)
		switch {
		case err != nil && p.Defers != nil && p.Defers(verdict):
			deferred = append(deferred, err)
		case err != nil:
			return Result{}, err
		case wait > 0:
			return Result{RequeueAfter: wait}, errors.Join(deferred...)
		}
	}
	endless := fmt.Errorf("expected the pass to end within %d actions, and the last one was %s; this is a defect of the controller's decisions: report it with the log at level 4",
		maxActions, action)
	return Result{}, errors.Join(append(deferred, endless)...)
}

type key struct{}

// WithMayGoOn returns a context for a pass that may continue while mayGoOn returns nil. It is called from the pass and must not block.
func WithMayGoOn(ctx context.Context, mayGoOn func() error) context.Context {
	return context.WithValue(ctx, key{}, mayGoOn)
}

// MayGoOn returns nil if a pass may continue. It is called between two steps of a pass, when no step is incomplete. Errors: why
// the pass has to end, with that error; the holder that admits the key next does the rest.
func MayGoOn(ctx context.Context) error {
	if mayGoOn, ok := ctx.Value(key{}).(func() error); ok {
		return mayGoOn()
	}
	return nil
}
