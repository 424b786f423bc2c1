package leases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const testNamespace = "fleet-system"

func newStore(t *testing.T, config *rest.Config) *Store {
	t.Helper()
	begun := time.Now()
	store, err := NewStore(Config{
		Client: config, Namespace: testNamespace, Fleet: "fleet", Timeout: 2 * time.Second, Quiet: 6 * time.Second,
		Clock: clock.RealClock{},
		Now:   func() membership.Moment { return membership.Moment{Monotonic: time.Since(begun), Wall: time.Now()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelFleet: "fleet"}}}
}

func TestRequestsAndTheirOutcomes(t *testing.T) {
	store := newStore(t, apiserver.New("s", time.Now).Config())
	do := func(verb membership.Verb, name string, lease *coordinationv1.Lease, want membership.Outcome) membership.Reply {
		t.Helper()
		reply := store.Do(t.Context(), membership.Request{ID: 7, Verb: verb, Name: name, Lease: lease, Need: membership.NeedNothing})
		if reply.Outcome != want || reply.ID != 7 {
			t.Errorf("%s %s: got %+v, want %s", verb, name, reply, want)
		}
		return reply
	}
	do(membership.Get, "a", nil, membership.NotFound)
	created := do(membership.Create, "a", lease("a"), membership.Done).Lease
	do(membership.Create, "a", lease("a"), membership.Exists)
	do(membership.Update, "a", lease("a"), membership.Refused) // without UID and resourceVersion
	changed := created.DeepCopy()
	changed.Spec.HolderIdentity = new("session")
	written := do(membership.Update, "a", changed, membership.Done).Lease
	do(membership.Update, "a", created, membership.Conflict)
	if written.ResourceVersion == created.ResourceVersion {
		t.Error("an update has not changed the resourceVersion")
	}
	gone := written.DeepCopy()
	gone.Name = "b"
	do(membership.Update, "b", gone, membership.NotFound)
	other := lease("other")
	other.Labels[v1alpha1.LabelFleet] = "another"
	do(membership.Create, "other", other, membership.Done)
	if listed := do(membership.List, "", nil, membership.Done).Leases; len(listed) != 1 || listed[0].Name != "a" {
		t.Errorf("listed %v, want the one Lease of the fleet", listed)
	}
	do("patch", "a", created, membership.Refused)
}

// notSentError is the error of a transport that has not sent a request.
type notSentError struct{}

func (notSentError) Error() string { return "not sent" }
func (notSentError) NotSent() bool { return true }

func TestUnclearAnswersCountAsUnanswered(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
	}
	for want, errs := range map[membership.Outcome][]error{
		membership.Done:     {nil},
		membership.NotFound: {status(404, metav1.StatusReasonNotFound)},
		membership.Conflict: {status(409, metav1.StatusReasonConflict)},
		membership.Exists:   {status(409, metav1.StatusReasonAlreadyExists)},
		membership.Refused: {
			status(400, metav1.StatusReasonBadRequest), status(401, metav1.StatusReasonUnauthorized), status(403, metav1.StatusReasonForbidden),
			status(422, metav1.StatusReasonInvalid), status(429, metav1.StatusReasonTooManyRequests), fmt.Errorf("send: %w", notSentError{}),
		},
		membership.Unanswered: {
			context.DeadlineExceeded, errors.New("connection reset"), status(500, metav1.StatusReasonInternalError),
			status(504, metav1.StatusReasonTimeout), status(408, metav1.StatusReasonTimeout), status(503, metav1.StatusReasonServiceUnavailable),
			status(502, metav1.StatusReasonServiceUnavailable),
		},
	} {
		for _, err := range errs {
			if got := outcomeOf(err); got != want {
				t.Errorf("%v: got %s, want %s", err, got, want)
			}
		}
	}
}

// TestRefusalsAreLogged: the reason is in the log once a minute for each verb, since the reply has
// none. An update that is not sent is none.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New("s", time.Now)
		server.Refuse("create leases", apierrors.NewForbidden(coordinationv1.Resource("leases"), "a", errors.New("it is another fleet's")))
		store := newStore(t, server.Config())
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		for range 90 {
			for _, verb := range []membership.Verb{membership.Create, membership.Update} {
				store.Do(klog.NewContext(t.Context(), logger), membership.Request{Verb: verb, Name: "a", Lease: lease("a")})
			}
			time.Sleep(time.Second)
		}
		buffered, _ := logger.GetSink().(ktesting.Underlier) // it is one of ktesting
		log := buffered.GetBuffer().String()
		if lines := strings.Count(log, "refused a request"); lines != 2 || !strings.Contains(log, "it is another fleet's") {
			t.Errorf("%d lines, want 2 with the reason: %s", lines, log)
		}
	})
}

func TestDoEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New("s", time.Now)
		server.Away(true)
		store := newStore(t, server.Config())
		begun := time.Now()
		reply := store.Do(t.Context(), membership.Request{Verb: membership.Get, Name: "a"})
		if took := time.Since(begun); reply.Outcome != membership.Unanswered || took != 2*time.Second {
			t.Errorf("got %s after %s, want unanswered after 2s", reply.Outcome, took)
		}
		if reply.Sent.Monotonic != 0 {
			t.Errorf("sent at %s, want the moment before the send", reply.Sent.Monotonic)
		}
	})
}

// watchRecorder records what a watch shows.
type watchRecorder struct{ seen []string }

func (w *watchRecorder) Listed(leases []*coordinationv1.Lease) {
	for _, lease := range leases {
		w.seen = append(w.seen, "listed "+lease.Name)
	}
	w.seen = append(w.seen, "list")
}

func (w *watchRecorder) Seen(lease *coordinationv1.Lease) {
	w.seen = append(w.seen, "seen "+lease.Name)
}

func (w *watchRecorder) Gone(lease *coordinationv1.Lease) {
	w.seen = append(w.seen, "gone "+lease.Name)
}

// A watch whose request an API server accepts and never answers is requested again.
func TestWatchRepeatsRequestsWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New("s", time.Now)
		watches := 0
		server.Fault(func(r apiserver.Request) error {
			if r.URL.Query().Get("watch") == "" {
				return nil
			}
			if watches++; watches == 1 {
				<-r.Context().Done()
			}
			return r.Context().Err()
		})
		store := newStore(t, server.Config())
		ctx, stop := context.WithCancel(t.Context())
		w, ended := &watchRecorder{}, make(chan struct{})
		go func() {
			store.Watch(ctx, w)
			close(ended)
		}()
		time.Sleep(5 * time.Second)
		store.Do(t.Context(), membership.Request{Verb: membership.Create, Lease: lease("a")})
		time.Sleep(time.Second)
		synctest.Wait()
		if watches < 2 || w.seen[len(w.seen)-1] != "seen a" {
			t.Errorf("%d requests for a watch, saw %v", watches, w.seen)
		}
		stop()
		<-ended
	})
}

func TestWatchShowsAllChangesAndIsReplacedAfterQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New("s", time.Now)
		var requests []string
		server.Fault(func(r apiserver.Request) error {
			query := r.URL.Query()
			if r.Method == http.MethodGet {
				requests = append(requests, fmt.Sprintf("watch=%t version=%q", query.Get("watch") != "", query.Get("resourceVersion")))
				if query.Get("sendInitialEvents") != "" {
					t.Error("a list is streamed")
				}
			}
			return nil
		})
		store := newStore(t, server.Config())
		store.Do(t.Context(), membership.Request{Verb: membership.Create, Lease: lease("a")})
		ctx, stop := context.WithCancel(t.Context())
		w, ended := &watchRecorder{}, make(chan struct{})
		go func() {
			store.Watch(ctx, w)
			close(ended)
		}()
		synctest.Wait()
		store.Do(t.Context(), membership.Request{Verb: membership.Create, Lease: lease("b")})
		server.Remove("leases", testNamespace, "a")
		synctest.Wait()
		if diff := cmp.Diff([]string{"listed a", "list", "seen b", "gone a"}, w.seen); diff != "" {
			t.Errorf("the watch showed (-want +got):\n%s", diff)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		watches := slices.DeleteFunc(slices.Clone(requests), func(r string) bool { return r == `watch=false version=""` })
		if len(watches) < 3 {
			t.Errorf("%d watches in 20 s without events, want one after each 6 s: %v", len(watches), requests)
		}
		server.Edit("leases", testNamespace, "b", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if w.seen[len(w.seen)-1] != "seen b" {
			t.Errorf("a change after the replacement was not seen: %v", w.seen)
		}
		stop()
		<-ended
	})
}
