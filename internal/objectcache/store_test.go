package objectcache

import (
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

var parent = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "parent", UID: "parent"}}

// child returns the pod "a" of parent, which can be decoded or not.
func child(version int, undecodable bool) metav1.Object {
	p := pod("a", "1", strconv.Itoa(version))
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(parent, corev1.SchemeGroupVersion.WithKind("Node"))}
	if undecodable {
		return &decode.Failure{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta}}
	}
	return p
}

func count(s *Store[*corev1.Pod]) int {
	decoded, undecodable := s.Children(parent)
	return len(decoded) + len(undecodable)
}

func TestHandlersFindAnObjectThatBecomesUndecodableOnce(t *testing.T) {
	s := NewStore[*corev1.Pod]()
	var called []string
	record := func(from string, appeared bool) {
		if n := count(s); n != 1 {
			t.Errorf("handler of %s, appeared: %t: %d objects, want 1", from, appeared, n)
		}
		called = append(called, from+" "+strconv.FormatBool(appeared))
	}
	s.OnChange(func(_, after *corev1.Pod) { record("decoded", after != nil) })
	s.Undecodable.OnChange(func(_, after *decode.Failure) { record("undecodable", after != nil) })
	s.Put(child(1, false), false)
	s.Put(child(2, true), false)
	s.Put(child(3, false), false)
	expect(t, called, "decoded true", "decoded false", "undecodable true", "undecodable false", "decoded true")
}

func TestStoreKeepsTheNewestVersion(t *testing.T) {
	s := NewStore[*corev1.Pod]()
	for _, step := range []struct {
		put     metav1.Object
		version string
	}{
		{child(5, false), "5"},
		{child(4, true), "5"},
		{child(5, true), "5"},
		{child(6, true), "6"},
		{child(5, false), "6"},
		{child(6, false), "6"},
		{child(7, false), "7"},
	} {
		s.Put(step.put, false)
		if got, ok := s.Find(key("a")); !ok || got.GetResourceVersion() != step.version || len(s.Each()) != 1 || len(s.InSlot(1)) != 1 ||
			len(s.InNamespace("n")) != 1 {
			t.Errorf("after version %s: %v, want version %s, stored once", step.put.GetResourceVersion(), got, step.version)
		}
	}
	for _, step := range []struct {
		put           metav1.Object
		list, version string
	}{
		{child(6, false), "6", "7"}, // the list is older than what is stored
		{child(6, false), "9", "6"}, // etcd was restored
		{child(5, true), "9", "5"},
		{child(4, false), "4", "5"},
		{child(4, false), "5", "4"},
		{child(7, false), "9", "7"},
	} {
		s.PutListed(step.put, false, step.list)
		if got, ok := s.Find(key("a")); !ok || got.GetResourceVersion() != step.version || len(s.Each()) != 1 {
			t.Errorf("after version %s in a list of version %s: %v, want version %s, stored once", step.put.GetResourceVersion(),
				step.list, got, step.version)
		}
	}
	s.Delete(key("a"), "6")
	if count(s) != 1 {
		t.Error("removed by an older version")
	}
	s.Delete(key("a"), "7")
	if count(s) != 0 {
		t.Error("not removed")
	}
}

func TestReadersFindAnObjectThatMovesOnce(t *testing.T) {
	const moves = 5000
	s := NewStore[*corev1.Pod]()
	s.Put(child(1, false), false)
	var writing sync.WaitGroup
	ended := make(chan struct{})
	writing.Go(func() {
		defer close(ended)
		for i := range moves {
			s.Put(child(i+2, i%2 == 0), false)
		}
	})
	for {
		if n := count(s); n != 1 {
			t.Errorf("%d objects, want 1", n)
			break
		}
		select {
		case <-ended:
			return
		default:
		}
	}
	writing.Wait()
}
