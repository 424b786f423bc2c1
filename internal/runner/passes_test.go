package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// script is a world whose verdicts are known before: its actions one after the other, and then
// rest.
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

	errEnding = &apierrors.StatusError{
		ErrStatus: metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}},
	}
)

// passOf acts by the names of actions: those that begin with "fail" fail, those with "wait" wait
// for 5 s, and "endless" is never over.
func passOf(rest error, defers func(scriptVerdict) bool) Pass[*script, scriptVerdict] {
	return Pass[*script, scriptVerdict]{
		Decide: (*script).next,
		Defers: defers,
		Act: func(_ context.Context, s *script, v scriptVerdict) (time.Duration, error) {
			s.done = append(s.done, string(v))
			if v != "endless" {
				s.actions = s.actions[1:]
			}
			switch {
			case v == "fail because the namespace ends":
				return 0, errEnding
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
		{
			name: "an error of another action is not deferred", actions: []string{"fail", "b"}, defers: defersLate, done: []string{"fail"},
			errs: []error{errAct},
		},
		{
			name: "a deferred error ends the pass after its rest", actions: []string{"fail late", "b"}, defers: defersLate,
			done: []string{"fail late", "b", "rest"}, wait: time.Minute, errs: []error{errAct},
		},
		{
			name: "a deferred error does not hide that of the rest", actions: []string{"fail late"}, defers: defersLate, rest: errRest,
			done: []string{"fail late", "rest"}, wait: time.Minute, errs: []error{errAct, errRest},
		},
		{
			name: "a refusal by a namespace in deletion is not deferred", actions: []string{"fail late", "fail because the namespace ends", "b"},
			defers: func(scriptVerdict) bool { return true }, done: []string{"fail late", "fail because the namespace ends"},
			errs: []error{errAct, errEnding},
		},
		{name: "what cannot be done now ends the pass", actions: []string{"a", "wait", "b"}, done: []string{"a", "wait"}, wait: 5 * time.Second},
		{
			name: "a deferred error is not lost in a wait", actions: []string{"fail late", "wait"}, defers: defersLate,
			done: []string{"fail late", "wait"}, wait: 5 * time.Second, errs: []error{errAct},
		},
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
	world := &script{actions: []string{"fail late", "endless"}}
	_, err := passOf(nil, func(scriptVerdict) bool { return true }).Run(t.Context(), world)
	if len(world.done) != maxActions || err == nil || !strings.Contains(err.Error(), "endless") || !errors.Is(err, errAct) {
		t.Errorf("%d actions, want %d; error %v", len(world.done), maxActions, err)
	}
}

// TestNamespacesInDeletionAreNoFailureOfTheirKeys: what they refuse is logged once for each, and
// tried again seldom.
func TestNamespacesInDeletionAreNoFailureOfTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &ktesting.BufferTL{}
		metrics, attempts := NewMetrics(prometheus.NewRegistry()), 0
		r, err := New(Config[types.NamespacedName]{
			Name: "test", CreatesInNamespace: true, Metrics: metrics, MaxBackoff: time.Minute,
			Reconcile: func(context.Context, types.NamespacedName) (Result, error) {
				attempts++
				return Result{}, fmt.Errorf("create: %w", errors.Join(errEnding, errEnding))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig(ktesting.Verbosity(2)))))
		defer stop()
		go r.Run(ctx)
		for _, name := range []string{"a", "b", "c"} {
			r.Enqueue(types.NamespacedName{Namespace: "one", Name: name})
			r.Enqueue(types.NamespacedName{Namespace: "two", Name: name})
		}
		elapse(150 * time.Second)
		if attempts != 3*6 {
			t.Errorf("%d attempts, want one a minute for each of 6 keys", attempts)
		}
		if _, keys := r.oldestFailure(); keys != 0 || testutil.ToFloat64(metrics.errors.WithLabelValues("test")) != 0 {
			t.Errorf("%d keys fail, want none", keys)
		}
		if lines := strings.Count(log.String(), "Namespace is being deleted"); lines != 2 || !strings.Contains(log.String(), `namespace="two"`) {
			t.Errorf("%d lines, want one for each namespace:\n%s", lines, log)
		}
	})
}
