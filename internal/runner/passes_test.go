package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script is a world whose verdicts are known before: its actions one after the other, and then rest.
type script struct {
	actions []string
	done    []string
}

type scriptVerdict string

func (v scriptVerdict) Next() (action string, rest bool) { return string(v), v == "rest" }

func (scriptVerdict) Reason() (code, text string) { return "Script", "the script has it" }

func (scriptVerdict) Waits() string { return "" }

func (s *script) next() scriptVerdict {
	if len(s.actions) == 0 {
		return "rest"
	}
	return scriptVerdict(s.actions[0])
}

var (
	errAct  = errors.New("act")
	errRest = errors.New("rest")
)

// passOf acts by the names of actions: those that begin with "fail" fail, those with "wait" wait for 5 s, and "forever" is never over.
func passOf(rest error, defers func(scriptVerdict) bool) Pass[*script, scriptVerdict] {
	return Pass[*script, scriptVerdict]{
		Decide: (*script).next,
		Defers: defers,
		Act: func(_ context.Context, s *script, v scriptVerdict) (time.Duration, error) {
			s.done = append(s.done, string(v))
			if v != "forever" {
				s.actions = s.actions[1:]
			}
			switch {
			case strings.HasPrefix(string(v), "fail"):
				return 0, fmt.Errorf("%s: %w", v, errAct)
			case strings.HasPrefix(string(v), "wait"):
				return 5 * time.Second, nil
			}
			return 0, nil
		},
		Rest: func(_ context.Context, s *script, _ scriptVerdict) (Result, error) {
			s.done = append(s.done, "rest")
			return Result{RequeueAfter: time.Minute}, rest
		},
	}
}

func TestPass(t *testing.T) {
	defersLate := func(v scriptVerdict) bool { return v == "fail late" }
	for _, test := range []struct {
		name    string
		actions []string
		rest    error
		defers  func(scriptVerdict) bool
		done    []string
		wait    time.Duration
		errs    []error
	}{
		{name: "there is nothing to do", done: []string{"rest"}, wait: time.Minute},
		{name: "one action follows the other", actions: []string{"a", "b"}, done: []string{"a", "b", "rest"}, wait: time.Minute},
		{name: "an error ends the pass", actions: []string{"a", "fail", "b"}, done: []string{"a", "fail"}, errs: []error{errAct}},
		{name: "an error of another action is not deferred", actions: []string{"fail", "b"}, defers: defersLate, done: []string{"fail"}, errs: []error{errAct}},
		{name: "a deferred error ends the pass after its rest", actions: []string{"fail late", "b"}, defers: defersLate, done: []string{"fail late", "b", "rest"}, wait: time.Minute, errs: []error{errAct}},
		{name: "a deferred error does not hide that of the rest", actions: []string{"fail late"}, defers: defersLate, rest: errRest, done: []string{"fail late", "rest"}, wait: time.Minute, errs: []error{errAct, errRest}},
		{name: "what cannot be done now ends the pass", actions: []string{"a", "wait", "b"}, done: []string{"a", "wait"}, wait: 5 * time.Second},
		{name: "a deferred error is not lost in a wait", actions: []string{"fail late", "wait"}, defers: defersLate, done: []string{"fail late", "wait"}, wait: 5 * time.Second, errs: []error{errAct}},
		{name: "the rest fails", rest: errRest, done: []string{"rest"}, wait: time.Minute, errs: []error{errRest}},
	} {
		t.Run(test.name, func(t *testing.T) {
			world := &script{actions: test.actions}
			result, err := passOf(test.rest, test.defers).Run(t.Context(), world)
			if diff := cmp.Diff(test.done, world.done); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if result.RequeueAfter != test.wait {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, test.wait)
			}
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v in it", err, want)
				}
			}
			if len(test.errs) == 0 && err != nil {
				t.Errorf("error %v, want none", err)
			}
		})
	}
}

func TestPassThatDoesNotRestIsEnded(t *testing.T) {
	world := &script{actions: []string{"fail late", "forever"}}
	_, err := passOf(nil, func(scriptVerdict) bool { return true }).Run(t.Context(), world)
	if len(world.done) != maxActions || err == nil || !strings.Contains(err.Error(), "forever") || !errors.Is(err, errAct) {
		t.Errorf("%d actions, want %d; error %v", len(world.done), maxActions, err)
	}
}
