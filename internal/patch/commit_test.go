package patch

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// server applies patches to one machine and remembers them.
type server struct {
	t       *testing.T
	machine *v1alpha1.Machine
	patches []string
	fail    error
	takes   time.Duration
	prune   bool // drops the patched fields, as a CRD without them does
}

func (s *server) Patch(
	_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string,
) (*v1alpha1.Machine, error) {
	if time.Sleep(s.takes); s.fail != nil {
		return nil, s.fail
	}
	where := "main "
	if len(sub) > 0 {
		where = sub[0] + " "
	}
	s.patches = append(s.patches, where+string(data))
	if s.prune {
		return s.machine.DeepCopy(), nil
	}
	sent := &v1alpha1.Machine{}
	if err := json.Unmarshal(data, sent); err != nil {
		s.t.Fatal(err)
	}
	switch sent.ResourceVersion {
	case s.machine.ResourceVersion:
	case "": // and without a change
		return s.machine.DeepCopy(), nil
	default:
		return nil, apierrors.NewConflict(schema.GroupResource{}, s.machine.Name, nil)
	}
	before, err := json.Marshal(s.machine)
	if err != nil {
		s.t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := json.Unmarshal(after, m); err != nil {
		s.t.Fatal(err)
	}
	version, err := strconv.Atoi(s.machine.ResourceVersion)
	if err != nil {
		s.t.Fatal(err)
	}
	if m.DeletionTimestamp == nil || len(m.Finalizers) > 0 {
		m.ResourceVersion = strconv.Itoa(version + 1)
	}
	s.machine = m
	return m.DeepCopy(), nil
}

func newServer(t *testing.T) (*server, *Committer[*v1alpha1.Machine]) {
	s := &server{t: t, machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u", ResourceVersion: "7"}}}
	return s, New(func(string) Patcher[*v1alpha1.Machine] { return s })
}

func change(m *v1alpha1.Machine, f func(*v1alpha1.Machine)) *v1alpha1.Machine {
	desired := m.DeepCopy()
	f(desired)
	return desired
}

func TestCommitWritesOnlyDifferences(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.Machine)
		want   []string
	}{
		{"nothing", func(*v1alpha1.Machine) {}, nil},
		{"main", func(m *v1alpha1.Machine) { m.Spec.ProviderID = "p" }, []string{
			`main {"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"providerID":"p"}}`,
		}},
		{"status", func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = "Running" }, []string{
			`status {"metadata":{"resourceVersion":"7","uid":"u"},"status":{"currentStatus":{"phase":"Running"}}}`,
		}},
		{"both", func(m *v1alpha1.Machine) {
			m.Finalizers = []string{"f"}
			m.Status.CurrentStatus.Phase = "Running"
		}, []string{
			`main {"metadata":{"finalizers":["f"],"resourceVersion":"7","uid":"u"}}`,
			`status {"metadata":{"resourceVersion":"8","uid":"u"},"status":{"currentStatus":{"phase":"Running"}}}`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := newServer(t)
			observed := s.machine.DeepCopy()
			if _, err := c.Commit(t.Context(), observed, change(observed, tc.change)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, s.patches); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGeneratedObjectsHaveNoManagers: the record of who wrote what is removed from a Machine of a
// MachineSet with each patch but that of its status, and kept of one that belongs to another kind.
func TestGeneratedObjectsHaveNoManagers(t *testing.T) {
	for _, tc := range []struct{ owner, want string }{
		{v1alpha1.SchemeGroupVersion.String(), `main {"metadata":{"finalizers":["f"],"managedFields":[{}],"resourceVersion":"7","uid":"u"}}`},
		{"example.com/v1", `main {"metadata":{"finalizers":["f"],"resourceVersion":"7","uid":"u"}}`},
	} {
		s, c := newServer(t)
		s.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: tc.owner, Kind: "MachineSet", Name: "s", Controller: new(true)}}
		observed := s.machine.DeepCopy()
		desired := change(observed, func(m *v1alpha1.Machine) {
			m.Finalizers, m.Status.CurrentStatus.Phase = []string{"f"}, "Running"
		})
		if _, err := c.Commit(t.Context(), observed, desired); err != nil {
			t.Fatal(err)
		}
		want := []string{tc.want, `status {"metadata":{"resourceVersion":"8","uid":"u"},"status":{"currentStatus":{"phase":"Running"}}}`}
		if diff := cmp.Diff(want, s.patches); diff != "" {
			t.Errorf("owner %s: patches (-want +got):\n%s", tc.owner, diff)
		}
	}
}

func TestNewestIsTheOwnWriteUntilTheCacheCatchesUp(t *testing.T) {
	s, c := newServer(t)
	cached := s.machine.DeepCopy()
	written, err := c.Commit(t.Context(), cached, change(cached, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "p" }))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Newest(cached); got.ResourceVersion != written.ResourceVersion {
		t.Errorf("Newest is version %s, want the own write, %s", got.ResourceVersion, written.ResourceVersion)
	}
	later := change(written, func(m *v1alpha1.Machine) { m.ResourceVersion = "9" })
	if got := c.Newest(later); got.ResourceVersion != "9" {
		t.Errorf("Newest is version %s, want 9, which the cache has", got.ResourceVersion)
	}
	if len(c.written) != 0 {
		t.Errorf("%d objects are remembered after the cache has caught up", len(c.written))
	}
}

// TestOwnVersions: only versions that this Committer wrote are its own, each once; those of another
// one that shares what is written are not.
func TestOwnVersions(t *testing.T) {
	s, c := newServer(t)
	other := NewSharing(c.Latest, func(string) Patcher[*v1alpha1.Machine] { return s })
	m := s.machine.DeepCopy()
	write := func(c *Committer[*v1alpha1.Machine], id string) {
		t.Helper()
		written, err := c.Commit(t.Context(), m, change(m, func(m *v1alpha1.Machine) { m.Spec.ProviderID = id }))
		if err != nil {
			t.Fatal(err)
		}
		m = written
	}
	version := func(v string) *v1alpha1.Machine {
		return change(m, func(m *v1alpha1.Machine) { m.ResourceVersion = v })
	}
	write(c, "a")     // 8
	write(c, "b")     // 9
	write(other, "c") // 10
	write(c, "d")     // 11
	for _, tc := range []struct {
		shown string
		own   bool
	}{{"7", false}, {"8", true}, {"8", false}, {"10", false}, {"9", false}, {"11", true}, {"12", false}} {
		if got := c.IsOwn(version(tc.shown)); got != tc.own {
			t.Errorf("version %s: own %t, want %t", tc.shown, got, tc.own)
		}
	}
	if len(c.versions.unseen)+len(c.written) > 0 {
		t.Errorf("remembered: %v, %v", c.versions.unseen, c.written)
	}
	write(c, "e")
	c.Forget(m.UID)
	now := metav1.Now()
	s.machine.DeletionTimestamp, s.machine.Finalizers = &now, []string{"f"}
	m = s.machine.DeepCopy()
	if _, err := c.Commit(t.Context(), m, change(m, func(m *v1alpha1.Machine) { m.Finalizers = nil })); err != nil {
		t.Fatal(err)
	}
	if len(c.versions.unseen) > 0 {
		t.Errorf("remembered of objects that are gone: %v", c.versions.unseen)
	}
}

func TestNewSharingWriteOfOneIsKnownToAll(t *testing.T) {
	s, _ := newServer(t)
	client := func(string) Patcher[*v1alpha1.Machine] { return s }
	written := NewLatest[*v1alpha1.Machine]()
	one, other, unrelated := NewSharing(written, client), NewSharing(written, client), New(client)
	cached := s.machine.DeepCopy()
	if _, err := one.Commit(t.Context(), cached, change(cached, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "p" })); err != nil {
		t.Fatal(err)
	}
	if got := other.Newest(cached); got.ResourceVersion != "8" || got.Spec.ProviderID != "p" {
		t.Errorf("a sharing committer knows version %s, want 8", got.ResourceVersion)
	}
	if got := unrelated.Newest(cached); got != cached {
		t.Errorf("a separate committer knows version %s, want the cached one", got.ResourceVersion)
	}
}

// Two controllers that write one version at the same time: the second write, which would be
// rejected, is not sent.
func TestWritesOfOneVersionByThisProcessAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t)
		s.takes = time.Second
		client := func(string) Patcher[*v1alpha1.Machine] { return s }
		written := NewLatest[*v1alpha1.Machine]()
		observed, errs := s.machine.DeepCopy(), make(chan error, 2)
		for _, id := range []string{"a", "b"} {
			go func() {
				wanted := change(observed, func(m *v1alpha1.Machine) { m.Spec.ProviderID = id })
				_, err := NewSharing(written, client).Commit(t.Context(), observed, wanted)
				errs <- err
			}()
		}
		if one, other := <-errs, <-errs; one != nil || !apierrors.IsConflict(other) || len(s.patches) != 1 {
			t.Errorf("%v and %v with %d requests, want no error, a conflict and 1", one, other, len(s.patches))
		}
	})
}

// An API server may answer with objects of any size, and with others.
func TestBoundOfWhatIsRemembered(t *testing.T) {
	machine := func(uid types.UID, version string, bytes int) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: uid, ResourceVersion: version}}
		m.Status.LastKnownState = strings.Repeat("x", bytes)
		return m
	}
	l := NewLatest[*v1alpha1.Machine]().AtMost(10000)
	remembered := func(uid types.UID) bool { return l.Newest(machine(uid, "1", 0)).ResourceVersion != "1" }
	l.Wrote(machine("a", "2", 4000))
	l.Wrote(machine("b", "2", 4000))
	l.Wrote(machine("c", "2", 4000))
	if !remembered("a") || !remembered("b") || remembered("c") {
		t.Error("want the first two of three objects of 4 kB to be remembered, of 10 kB together")
	}
	l.Wrote(machine("a", "3", 4500))
	l.Wrote(machine("b", "3", 9000))
	if !remembered("a") || remembered("b") {
		t.Error("want the object that has become too large to be forgotten")
	}
	l.Newest(machine("a", "4", 0)) // the cache has caught up
	l.Wrote(machine("c", "3", 8000))
	if !remembered("c") {
		t.Error("want the room of an object that is not remembered any more to be used")
	}
	s, c := newServer(t)
	s.machine.UID, s.prune = "other", true
	observed := machine("u", "7", 0)
	if _, err := c.Commit(t.Context(), observed, change(observed, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "p" })); err != nil {
		t.Fatal(err)
	}
	if len(c.written) != 0 {
		t.Error("an answer about another object is remembered")
	}
}

func TestNewestDeletedObjectStaysDeleted(t *testing.T) {
	s, c := newServer(t)
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s.machine.DeletionTimestamp, s.machine.Finalizers = &now, []string{"f"}
	cached := s.machine.DeepCopy()
	if _, err := c.Commit(t.Context(), cached, change(cached, func(m *v1alpha1.Machine) { m.Finalizers = nil })); err != nil {
		t.Fatal(err)
	}
	if got := c.Newest(cached); len(got.Finalizers) != 0 {
		t.Error("the cache, which is late, brings the finalizer back")
	}
	c.Forget("u")
	if got := c.Newest(cached); len(got.Finalizers) != 1 {
		t.Error("the object is remembered after Forget")
	}
}

func TestFutilePatchIsNotRepeated(t *testing.T) {
	s, c := newServer(t)
	s.prune = true
	observed := s.machine.DeepCopy()
	for range 3 {
		if _, err := c.Commit(t.Context(), observed, change(observed, func(m *v1alpha1.Machine) { m.Status.LastKnownState = "x" })); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.patches) != 1 {
		t.Errorf("%d patches, want 1: %q", len(s.patches), s.patches)
	}
}

// TestConflictWithTheOwnLastWrite: it is forgotten if etcd was restored to an older version, and
// kept while the informer is behind another one's write.
func TestConflictWithTheOwnLastWrite(t *testing.T) {
	for _, tc := range []struct {
		name     string
		stored   string // version, when the own write was 8
		uid      types.UID
		shown    bool // by the informer: the own write is not remembered, and nothing is read
		want     string
		requests int
	}{
		{"restored", "7", "u", false, "7", 3},
		{"another one has written", "9", "u", false, "8", 3},
		{"another object has its name", "5", "v", false, "8", 3},
		{"the informer has caught up", "9", "u", true, "8", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := newServer(t)
			backup := s.machine.DeepCopy()
			cached := backup
			write := func() error {
				observed := c.Newest(cached)
				_, err := c.Commit(t.Context(), observed, change(observed, func(m *v1alpha1.Machine) { m.Spec.ProviderID += "p" }))
				return err
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if tc.shown {
				cached = s.machine.DeepCopy()
			}
			s.machine = change(backup, func(m *v1alpha1.Machine) { m.ResourceVersion, m.UID = tc.stored, tc.uid })
			if err := write(); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a conflict", err)
			}
			if got := c.Newest(cached).ResourceVersion; got != tc.want {
				t.Errorf("Newest is version %s, want %s", got, tc.want)
			}
			if len(s.patches) != tc.requests {
				t.Errorf("%d requests, want %d: %q", len(s.patches), tc.requests, s.patches)
			}
		})
	}
}

func TestCommitErrorReturnsWrittenPart(t *testing.T) {
	s, c := newServer(t)
	s.fail = errors.New("no")
	observed := s.machine.DeepCopy()
	got, err := c.Commit(t.Context(), observed, change(observed, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "p" }))
	if !errors.Is(err, s.fail) || got.Spec.ProviderID != "" {
		t.Errorf("got %v, %v", got.Spec, err)
	}
}

func TestPace(t *testing.T) {
	const second = time.Second
	p := NewPace(second, 5*second)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds float64, change Change, want float64) {
		t.Helper()
		if got := p.Wait(m, change, now.Add(time.Duration(seconds*float64(second)))); got != time.Duration(want*float64(second)) {
			t.Errorf("at %v s: wait %s, want %v s", seconds, got, want)
		}
	}
	at(0, Unchanged, 0)
	at(0, Counted, 1)      // the first change is held back
	at(0.5, Counted, 0.5)  // the next ones join it
	at(1, Counted, 0)      // written
	at(1.5, Counted, 1)    // begins anew
	at(1.75, Unchanged, 0) // reverted
	at(2, Streaming, 5)    // soon after a write, for the longest wait
	at(7, Streaming, 0)    // written
	at(8, Streaming, 5)    // and again
	at(8.5, Counted, 0.5)  // written together with the delayed change
	at(9, Counted, 0)      //
	at(18, Streaming, 1)   // after some quiet it is a first change again
	at(19, Streaming, 0)
	p.Failed(m, errors.New("no"))
	at(19.1, Counted, 0) // at once: it was not written
	at(19.2, Counted, 1) // begins anew
	at(20.2, Counted, 0)
	p.Failed(m, apierrors.NewConflict(schema.GroupResource{}, "m", nil))
	at(20.3, Counted, 1) // a conflict is decided on anew
	at(21.3, Counted, 0)
	p.Failed(m, errors.New("no"))
	at(21.4, Unchanged, 0) // reverted
	at(21.5, Counted, 1)
	at(22.5, Counted, 0)
	at(23, Counted, 1)
	m.DeletionTimestamp = &metav1.Time{Time: now}
	at(23.5, Counted, 4.5) // slower while it is deleted, from the first change on
	p.Forget("u")
	at(24, Counted, 5)
}

func TestDeletedObjectsAreEventuallyForgotten(t *testing.T) {
	l := NewLatest[*v1alpha1.Machine]()
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for i := range 3 * mostEnded {
		l.Wrote(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(i)), DeletionTimestamp: &now}})
	}
	if len(l.ended) != mostEnded || len(l.endings) != mostEnded {
		t.Errorf("%d and %d ends are remembered, want %d", len(l.ended), len(l.endings), mostEnded)
	}
}
