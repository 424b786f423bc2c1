package apiserver

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Server is an API server with its storage. Create one with New.
type Server struct {
	name    string
	now     func() time.Time
	clients func() Clients

	mu       sync.Mutex
	revision int64
	oldest   int64 // watches may begin at this revision, and not before
	stores   map[string]*store
	pages    map[string]pages
	era      chan struct{} // closed when the storage is replaced, which ends all watches
	back     chan struct{} // closed when the server answers again; nil while it answers
	fault    func(Request) error
	lose     func(Request) error
	records  bool
	requests []Request
	watches  int                                   // that are open
	follow   map[string]func(o *Object, gone bool) // by resource
}

// store has the objects of one resource.
type store struct {
	resource string
	objects  map[types.NamespacedName]*Object
	order    []*Object                       // all objects in the order of lists; nil after a change
	labelled map[string]map[string][]*Object // by the key and the value of a label, in that order; nil after a change
	history  []change
	trimmed  int64         // the revision of the last change that was removed from history
	changed  chan struct{} // closed at the next change
}

// change is one write.
type change struct {
	revision      int64
	at            time.Time
	before, after *Object        // nil for none
	gone          func() *Object // before, with the revision of the change; few watches show it
}

// pages are the remaining pages of a list.
type pages struct {
	revision int64
	rest     []*Object
}

// New returns a server without objects. The name distinguishes the UIDs of several servers, now is
// its clock.
func New(name string, now func() time.Time) *Server {
	s := &Server{
		name:   name,
		now:    now,
		stores: map[string]*store{},
		pages:  map[string]pages{},
		era:    make(chan struct{}),
		follow: map[string]func(*Object, bool){},
	}
	s.clients = sync.OnceValue(func() Clients { return ClientsThrough(s) })
	return s
}

// storeOf returns the store of a resource; s.mu is held.
func (s *Server) storeOf(resource string) *store {
	if s.stores[resource] == nil {
		s.stores[resource] = &store{resource: resource, objects: map[types.NamespacedName]*Object{}, changed: make(chan struct{})}
	}
	return s.stores[resource]
}

// Get returns an object as it is stored, nil when there is none.
func (s *Server) Get(resource, namespace, name string) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storeOf(resource).objects[types.NamespacedName{Namespace: namespace, Name: name}]
}

// List returns all objects of a resource, by namespace and name.
func (s *Server) List(resource string) []*Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sorted(resource))
}

// sorted returns what List does; it must not be changed. s.mu is held.
func (s *Server) sorted(resource string) []*Object {
	st := s.storeOf(resource)
	if st.order == nil {
		st.order = slices.SortedFunc(maps.Values(st.objects), byName)
		st.labelled = map[string]map[string][]*Object{}
	}
	return st.order
}

func byName(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}

// selected returns what a selection selects of a resource, in the order of List. Where a label has
// to have one of some values, it looks only at objects that have: each of many replicas lists its
// slots. s.mu is held.
func (s *Server) selected(resource string, by selection) (found []*Object) {
	candidates, st := s.sorted(resource), s.storeOf(resource)
	requirements, _ := by.labels.Requirements()
	i := slices.IndexFunc(requirements, func(r labels.Requirement) bool { return r.Operator() == operator.In })
	if i >= 0 {
		key := requirements[i].Key()
		if st.labelled[key] == nil {
			st.labelled[key] = map[string][]*Object{}
			for _, o := range candidates {
				if value, has := o.labels[key]; has {
					st.labelled[key][value] = append(st.labelled[key][value], o)
				}
			}
		}
		candidates = nil
		for value := range requirements[i].Values() {
			candidates = append(candidates, st.labelled[key][value]...)
		}
	}
	for _, o := range candidates {
		if by.selects(o) {
			found = append(found, o)
		}
	}
	if i >= 0 {
		slices.SortFunc(found, byName)
	}
	return found
}

// Put stores an object unchanged, without any of the checks of a request, and returns it as it is
// stored. Errors: it cannot be encoded.
func (s *Server) Put(resource string, document map[string]any) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(resource, (&unstructured.Unstructured{Object: document}).DeepCopy())
}

// put stores an object, which it changes; s.mu is held.
func (s *Server) put(resource string, u *unstructured.Unstructured) (*Object, error) {
	st := s.storeOf(resource)
	before := st.objects[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}]
	if before == nil {
		s.born(u, kinds[resource])
	} else {
		u.SetUID(before.GetUID())
		u.SetCreationTimestamp(before.GetCreationTimestamp())
		if kinds[resource].counts {
			u.SetGeneration(before.GetGeneration() + 1)
		}
	}
	return s.write(st, before, u)
}

// Load stores an object with its own UID, generation and times, as it was recorded elsewhere.
// Errors: it cannot be encoded.
func (s *Server) Load(resource string, document map[string]any) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(s.storeOf(resource), nil, (&unstructured.Unstructured{Object: document}).DeepCopy())
}

// Edit changes an object, like a client that has just read it; there is no new version if nothing
// changes. It reports whether the object exists. edit must not use the server.
func (s *Server) Edit(resource, namespace, name string, edit func(*unstructured.Unstructured)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.storeOf(resource).objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if before == nil {
		return false
	}
	u := before.DeepCopy()
	edit(u)
	if reflect.DeepEqual(u.Object, before.Object) {
		return true
	}
	_, err := s.put(resource, u)
	return err == nil
}

// Remove removes an object at once, regardless of its finalizers.
func (s *Server) Remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.storeOf(resource)
	if before := st.objects[types.NamespacedName{Namespace: namespace, Name: name}]; before != nil {
		_, _ = s.write(st, before, nil) // the object was encoded before
	}
}

// Delete deletes an object as a request without preconditions does: it stays while it has
// finalizers.
func (s *Server) Delete(resource, namespace, name string) {
	t := target{resource: resource, kind: kinds[resource]}
	t.Namespace, t.Name = namespace, name
	_, _ = s.delete(t, nil, false) // the object does not exist
}

// born sets the fields of a new object that the server decides.
func (s *Server) born(u *unstructured.Unstructured, k kind) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s/%s %d", s.name, u.GetNamespace(), u.GetName(), s.revision+1)
	u.SetUID(types.UID(fmt.Sprintf("%s-%016x", s.name, h.Sum64())))
	u.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	u.SetDeletionTimestamp(nil)
	if k.counts {
		u.SetGeneration(1)
	}
}

// write stores the next version of an object, nil for its deletion; s.mu is held.
func (s *Server) write(st *store, before *Object, u *unstructured.Unstructured) (*Object, error) {
	c := change{revision: s.revision + 1, at: s.now(), before: before}
	var err error
	c.gone = sync.OnceValue(func() *Object {
		last := before.DeepCopy()
		last.SetResourceVersion(strconv.FormatInt(c.revision, 10))
		o, _ := newObject(last) // it was encoded before
		return o
	})
	if u != nil {
		u.SetResourceVersion(strconv.FormatInt(c.revision, 10))
		if c.after, err = newObject(u); err != nil {
			return nil, err
		}
	}
	s.revision++
	st.order = nil
	if c.after == nil {
		delete(st.objects, before.key)
	} else {
		st.objects[c.after.key] = c.after
	}
	st.history = append(st.history, c)
	close(st.changed)
	st.changed = make(chan struct{})
	if follow := s.follow[st.resource]; follow != nil {
		follow(cmp.Or(c.after, before), c.after == nil)
	}
	return c.after, nil
}

// show calls f as Follow does.
func (s *Server) show(resource string, f func(o *Object, gone bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow[resource] = f
	for _, o := range s.sorted(resource) {
		f(o, false)
	}
}

// Snapshot is a backup of a server's storage.
type Snapshot struct {
	revision int64
	objects  map[string]map[types.NamespacedName]*Object
}

// Save takes a backup.
func (s *Server) Save() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := Snapshot{revision: s.revision, objects: map[string]map[types.NamespacedName]*Object{}}
	for resource, st := range s.stores {
		saved.objects[resource] = maps.Clone(st.objects)
	}
	return saved
}

// bump is by how much a restore raises the revision, as etcd's documentation recommends.
const bump = 1_000_000

// Restore restores a backup, with a raised revision and everything before it compacted. All watches
// end.
func (s *Server) Restore(saved Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = max(s.revision, saved.revision) + bump
	for resource, st := range s.stores {
		st.objects, st.order = maps.Clone(saved.objects[resource]), nil
		if st.objects == nil {
			st.objects = map[types.NamespacedName]*Object{}
		}
	}
	s.endWatches()
}

// Replace stores an object with its own UID in the place of the one of its name, regardless of that
// one's finalizers. All watches end without showing that; only a list shows the new object. Errors:
// it cannot be encoded.
func (s *Server) Replace(resource string, document map[string]any) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := (&unstructured.Unstructured{Object: document}).DeepCopy()
	s.born(u, kinds[resource])
	replacement, err := s.write(s.storeOf(resource), nil, u)
	s.endWatches()
	return replacement, err
}

// endWatches ends all watches, and removes the history, so that none can continue; s.mu is held.
func (s *Server) endWatches() {
	s.oldest = s.revision
	for _, st := range s.stores {
		st.history = nil
	}
	clear(s.pages)
	close(s.era)
	s.era = make(chan struct{})
}

// Compact removes the history: watches cannot begin at an older revision.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.revision
	clear(s.pages)
}

// Trim removes changes that are older than a duration: watches cannot begin before them, and one
// that has not shown them yet ends. Lists that began earlier have no further pages.
func (s *Server) Trim(olderThan time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.now().Add(-olderThan)
	for _, st := range s.stores {
		n := 0
		for n < len(st.history) && st.history[n].at.Before(since) {
			n++
		}
		if n > 0 {
			st.trimmed = st.history[n-1].revision
			s.oldest = max(s.oldest, st.trimmed)
			st.history = slices.Clone(st.history[n:])
		}
	}
	clear(s.pages)
}

// conflict returns the error of a write that was based on another version.
func (t target) conflict(format string, args ...any) error {
	return apierrors.NewConflict(t.groupResource(), t.Name, fmt.Errorf(format, args...))
}
