package deletion

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limits are the annotations of Namespaces.
type limits map[string]string

// Known reports whether they are known: not with the key "unknown".
func (l limits) Known() bool { return l["unknown"] == "" }

func (l limits) Annotation(namespace, key string) (string, bool) {
	value, ok := l[namespace]
	return value, ok && key == v1alpha1.AnnotationMaxDeletions
}

// cluster is an API server that replicas reserve at.
type cluster struct {
	*testing.T
	*apiserver.Server

	limits limits
	clock  *testclock.FakeClock
	sent   atomic.Int32
	before func(r *http.Request) error
}

func newCluster(t *testing.T, l limits) *cluster {
	return &cluster{T: t, Server: apiserver.New("c", time.Now), limits: l, clock: testclock.NewFakeClock(time.Unix(1767323045, 0))}
}

// RoundTrip sends the requests of all replicas.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	if c.before != nil {
		if err := c.before(r); err != nil {
			return nil, err
		}
	}
	return c.Server.RoundTrip(r)
}

// replica returns the Budget of another replica, or of one that has restarted.
func (c *cluster) replica(preset int) *Budget {
	client, err := coordinationclient.NewForConfig(&rest.Config{Host: "http://memory", Transport: c, QPS: -1})
	if err != nil {
		c.Fatal(err)
	}
	return &Budget{Namespaces: c.limits, Leases: client, Default: preset, Clock: c.clock}
}

// want checks what a replica is granted, and when more may begin.
func (c *cluster) want(b *Budget, keys, reserved string, next time.Duration) {
	c.Helper()
	grant, err := b.Reserve(c.Context(), "n", strings.Fields(keys))
	var got []string
	for key := range strings.FieldsSeq(keys) {
		if grant.Reserved[key] {
			got = append(got, key)
		}
	}
	if is := strings.Join(got, " "); err != nil || is != reserved || grant.Next != next {
		c.Errorf("of %q reserved %q, the next after %s (%v); want %q, %s", keys, is, grant.Next, err, reserved, next)
	}
}

func TestLimit(t *testing.T) {
	b := newCluster(t, limits{"more": "7", "off": "0", "bad": "many"}).replica(3)
	for namespace, want := range map[string]int{"more": 7, "off": 0, "bad": 3, "other": 3} {
		limit, ignored := b.limit(namespace)
		if limit != want || (ignored != "") != (namespace == "bad") || b.Ignored(namespace) != ignored {
			t.Errorf("%s: %d, %q; want %d", namespace, limit, ignored, want)
		}
	}
	if text := b.Ignored("bad"); !strings.Contains(text,
		"max-deletions-per-hour of the Namespace is ignored, and --safety-max-deletions-per-hour=3 applies: expected a number from 0 to 500") {
		t.Errorf("%q", text)
	}
}

func TestReservationWithoutLimitSendsNoRequest(t *testing.T) {
	c := newCluster(t, limits{"n": "0"})
	c.want(c.replica(1), "a b c", "a b c", 0)
	c.limits["n"] = "1"
	c.want(c.replica(1), "", "", 0)
	if n := c.sent.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Before the annotations of Namespaces are known, which may limit deletions, none is reserved,
// although the fleet has no limit.
func TestUnknownLimitsReserveNothing(t *testing.T) {
	c := newCluster(t, limits{"unknown": "x"})
	if grant, err := c.replica(0).Reserve(t.Context(), "n", []string{"a"}); err == nil || len(grant.Reserved) > 0 {
		t.Errorf("reserved %v, %v; want an error", grant.Reserved, err)
	}
	delete(c.limits, "unknown")
	c.want(c.replica(0), "a", "a", 0)
}

// Another replica, and one that has restarted, finds what was reserved. A reservation ends after an
// hour.
func TestReserveIsSharedByReplicas(t *testing.T) {
	c := newCluster(t, limits{})
	c.want(c.replica(2), "a", "a", 0)
	c.clock.Step(20 * time.Minute)
	c.want(c.replica(2), "b d", "b", 40*time.Minute)
	c.want(c.replica(2), "a", "a", 0) // again, after its process ended before it could act
	c.sent.Store(0)
	c.want(c.replica(2), "d", "", time.Hour)
	if n := c.sent.Load(); n != 1 {
		t.Errorf("%d requests, want one that reads", n)
	}
	c.clock.Step(time.Hour - time.Second)
	c.want(c.replica(2), "d", "", time.Second)
	c.clock.Step(time.Second)
	c.want(c.replica(2), "d e", "d e", 0)
	if text := c.Get("leases", "n", v1alpha1.LeaseDeletions).
		GetAnnotations()[v1alpha1.AnnotationDeletions]; text != `{"d":1767327845,"e":1767327845}` {
		t.Errorf("recorded %s", text)
	}
}

// The limit of one namespace does not depend on another's.
func TestEachNamespaceHasItsOwnReservations(t *testing.T) {
	c := newCluster(t, limits{})
	b := c.replica(1)
	for _, namespace := range []string{"n", "m"} {
		if grant, err := b.Reserve(t.Context(), namespace, []string{"a"}); err != nil || !grant.Reserved["a"] {
			t.Errorf("%s: %+v, %v", namespace, grant, err)
		}
	}
}

// Each of many that reserve at the same time has a reservation, or none is left.
func TestReserveAtTheSameTimeStaysWithinTheLimit(t *testing.T) {
	c := newCluster(t, limits{})
	var all sync.WaitGroup
	var reserved atomic.Int32
	for i := range 4 {
		b := c.replica(3)
		all.Go(func() {
			grant, err := b.Reserve(t.Context(), "n", []string{fmt.Sprint("x", i)})
			if err != nil {
				t.Error(err)
			}
			reserved.Add(int32(len(grant.Reserved)))
		})
	}
	all.Wait()
	if n := reserved.Load(); n != 3 {
		t.Errorf("%d reservations, want 3", n)
	}
}

// The Lease that another process creates or writes between read and write is read again.
func TestReservationCountsAnotherWriteMeanwhile(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			c := newCluster(t, limits{})
			other := &cluster{T: t, Server: c.Server, limits: c.limits, clock: c.clock}
			if method == http.MethodPut {
				other.want(other.replica(9), "before", "before", 0)
			}
			c.before = func(r *http.Request) error {
				if r.Method == method {
					c.before = nil
					other.want(other.replica(9), "theirs", "theirs", 0)
				}
				return nil
			}
			c.want(c.replica(1), "a", "", time.Hour)
		})
	}
}

// A time that lies in the future, because a clock was wrong, counts for an hour from when it was
// first seen.
func TestReservationOfAWrongClockBlocksForAnHour(t *testing.T) {
	c := newCluster(t, limits{})
	wrong := c.replica(1)
	wrong.Clock = testclock.NewFakePassiveClock(c.clock.Now().Add(100 * time.Hour))
	c.want(wrong, "a", "a", 0)
	c.want(c.replica(1), "b", "", time.Hour)
	c.clock.Step(time.Hour)
	c.want(c.replica(1), "b", "b", 0)
}

func TestErrorsReserveNothing(t *testing.T) {
	away := errors.New("the API server is away")
	for name, tc := range map[string]struct {
		text   string // on the Lease
		fails  string // method of requests that fail
		others bool   // another process writes before each write
		want   string
	}{
		"not readable":      {fails: http.MethodGet, want: "away"},
		"not writable":      {fails: http.MethodPut, want: "away"},
		"not decodable":     {text: "[]", want: "expected the times of reservations as JSON"},
		"always in dispute": {others: true, want: "has been modified"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, limits{})
			document := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{
				"namespace": "n", "name": v1alpha1.LeaseDeletions, "annotations": map[string]any{v1alpha1.AnnotationDeletions: tc.text},
			}}
			if _, err := c.Put("leases", document); err != nil {
				t.Fatal(err)
			}
			writes := 0
			c.before = func(r *http.Request) error {
				if r.Method == tc.fails {
					return away
				}
				if r.Method == http.MethodPut && tc.others {
					writes++
					c.Edit("leases", "n", v1alpha1.LeaseDeletions, func(u *unstructured.Unstructured) {
						u.SetLabels(map[string]string{"writes": fmt.Sprint(writes)})
					})
				}
				return nil
			}
			grant, err := c.replica(1).Reserve(t.Context(), "n", []string{"a"})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Lease n/"+v1alpha1.LeaseDeletions) ||
				len(grant.Reserved) > 0 {
				t.Errorf("%+v, %v; want the error %q", grant, err, tc.want)
			}
			if tc.others && writes != attempts {
				t.Errorf("%d writes, want %d", writes, attempts)
			}
		})
	}
}
