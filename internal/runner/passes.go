package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// maxActions bounds one pass. No controller has a pass with as many actions; more would be a cycle
// in its decisions.
const maxActions = 32

// Verdict is a decision about an object.
type Verdict interface {
	// Next returns the name of the action to take. rest reports whether there is none left, so that
	// the pass ends.
	Next() (action string, rest bool)
	// Reason returns why, for traces, without text of clouds, kubelets and users: a code of which
	// there are few, or "", and a text.
	Reason() (code, text string)
	// Waits returns what the object waits for when the pass rests, one of few texts for traces; "" if
	// for nothing.
	Waits() string
}

// Pass takes the actions that a controller decides on for one key: it decides, acts, and decides
// again on the result of the action, until a verdict rests. W is the world that the decisions are
// based on; the functions share it, so it is a pointer. Decide, Act and Rest are required.
type Pass[W any, V Verdict] struct {
	// Decide returns the verdict on a world.
	Decide func(world W) V
	// Act takes the action of a verdict and records its result in the world. A wait greater than 0
	// ends the pass: the action cannot be taken now, and the key is reconciled again after the wait.
	Act func(ctx context.Context, world W, verdict V) (wait time.Duration, err error)
	// Rest ends the pass with the verdict that rests.
	Rest func(ctx context.Context, world W, verdict V) (Result, error)
	// Defers reports whether an error of the verdict's action ends the pass only after Rest, because
	// the object has to show it. Nil means that each error ends the pass at once. That a namespace in
	// deletion refuses an object always does: there is nothing to show.
	Defers func(verdict V) bool
}

// Run runs the pass on a world.
func (p Pass[W, V]) Run(ctx context.Context, world W) (Result, error) {
	var deferred []error
	var action string
	for range maxActions {
		step, err := p.step(ctx, world)
		action = step.action
		switch {
		case step.rest:
			return step.result, errors.Join(append(deferred, err)...)
		case err != nil && step.defers && !isRefusedByEnding(err):
			deferred = append(deferred, err)
		case err != nil:
			return Result{}, errors.Join(append(deferred, err)...)
		case step.wait > 0:
			return Result{RequeueAfter: step.wait}, errors.Join(deferred...)
		}
	}
	endless := fmt.Errorf("expected the pass to end within %d actions, and the last one was %s; "+
		"this is a defect of the controller's decisions: report it with the log at level 4",
		maxActions, action)
	return Result{}, errors.Join(append(deferred, endless)...)
}

// taken is the result of a step: with rest the pass has ended with result; otherwise its action was
// taken, or has to wait.
type taken struct {
	action string
	rest   bool
	result Result
	wait   time.Duration
	defers bool // an error ends the pass only after Rest
}

// step decides, and takes the action of the verdict or ends the pass, in a span.
func (p Pass[W, V]) step(ctx context.Context, world W) (is taken, err error) {
	ctx, span := telemetry.Step(ctx, "decide")
	defer span.End()
	verdict := p.Decide(world)
	is.action, is.rest = verdict.Next()
	if span.IsRecording() {
		span.SetName(telemetry.StepSpan(is.action))
	}
	telemetry.Decided(span, is.action, verdict.Reason)
	klog.FromContext(ctx).V(4).Info("Decided", "action", is.action)
	if is.rest {
		if traced, ok := ctx.Value(tracedKey{}).(*traced); ok {
			traced.waits = verdict.Waits()
		}
		is.result, err = p.Rest(ctx, world, verdict)
		return is, err
	}
	is.wait, err = p.Act(ctx, world, verdict)
	is.defers = p.Defers != nil && p.Defers(verdict)
	return is, err
}

type mayGoOnKey struct{}

// WithMayGoOn returns a context for a pass that may continue while mayGoOn returns nil. It is
// called from the pass and must not block.
func WithMayGoOn(ctx context.Context, mayGoOn func() error) context.Context {
	return context.WithValue(ctx, mayGoOnKey{}, mayGoOn)
}

// MayGoOn returns nil if a pass may continue. It is called between two steps of a pass, when no
// step is incomplete. Errors: why the pass has to end, with that error; the holder that admits the
// key next does the rest.
func MayGoOn(ctx context.Context) error {
	if mayGoOn, ok := ctx.Value(mayGoOnKey{}).(func() error); ok {
		return mayGoOn()
	}
	return nil
}
