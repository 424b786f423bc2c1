package objectcache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// created returns the pod "a" of that UID and version.
func created(uid types.UID, version string) *corev1.Pod {
	p := pod("a", "1", version)
	p.UID = uid
	return p
}

// uid returns the UID of an object in a note; "-" without one.
func uid[T interface {
	comparable
	metav1.Object
}](obj T,
) string {
	var none T
	if obj == none {
		return "-"
	}
	return string(obj.GetUID())
}

// An object in the place of another is removed for all handlers before it appears for the first
// one. What a handler reads then is the object that exists.
func TestObjectInThePlaceOfAnother(t *testing.T) {
	undecodable := func(uid types.UID, version string) *decode.Failure {
		return &decode.Failure{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: created(uid, version).ObjectMeta}}
	}
	replaced := []string{"1: old>- has new", "2: old>- has new", "1: ->new has new", "2: ->new has new"}
	hidden := []string{"1: old>- has new", "2: old>- has new", "1: ->newer has newer", "2: ->newer has newer"}
	for name, tc := range map[string]struct {
		apply func(m *Mirror[*corev1.Pod])
		want  []string // with what the cache has during each call
	}{
		"event": {func(m *Mirror[*corev1.Pod]) { _ = m.Update(created("new", "7")) }, replaced},
		"list":  {func(m *Mirror[*corev1.Pod]) { _ = m.Replace([]any{created("new", "7")}, "9") }, replaced},
		"change of the same object": {
			func(m *Mirror[*corev1.Pod]) { _ = m.Replace([]any{created("old", "7")}, "9") }, []string{"1: old>old has old", "2: old>old has old"},
		},
		"list after etcd was restored": {
			func(m *Mirror[*corev1.Pod]) { _ = m.Replace([]any{created("old", "4")}, "9") }, []string{"1: old>old has old", "2: old>old has old"},
		},
		"list after etcd was restored, with an object that is not kept": {func(m *Mirror[*corev1.Pod]) {
			m.Keep = func(p *corev1.Pod) (*corev1.Pod, bool) { return p, false }
			_ = m.Replace([]any{created("old", "4")}, "9")
		}, []string{"1: old>- has nothing", "2: old>- has nothing"}},
		"older": {func(m *Mirror[*corev1.Pod]) { _ = m.Update(created("new", "4")) }, nil},
		"its deletion is late": {func(m *Mirror[*corev1.Pod]) {
			_ = m.Update(created("new", "7"))
			_ = m.Delete(created("old", "6"))
		}, replaced},
		"undecodable": {func(m *Mirror[*corev1.Pod]) { _ = m.Update(undecodable("new", "7")) }, []string{
			"1: old>- has new", "2: old>- has new", "undecodable: ->new has new",
		}},
		"undecodable in the place of an undecodable one": {func(m *Mirror[*corev1.Pod]) {
			_ = m.Update(undecodable("old", "6"))
			_ = m.Update(undecodable("new", "7"))
		}, []string{
			"1: old>- has old", "2: old>- has old", "undecodable: ->old has old",
			"undecodable: old>- has new", "undecodable: ->new has new",
		}},
		"silent": {func(m *Mirror[*corev1.Pod]) {
			m.Store.Put(created("new", "7"), true)
			m.Store.Put(created("newer", "8"), true)
			m.Store.Announce(1)
		}, hidden},
		"silent, and then not": {func(m *Mirror[*corev1.Pod]) {
			m.Store.Put(created("new", "7"), true)
			m.Store.Put(created("newer", "8"), false)
		}, hidden},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore[*corev1.Pod]()
			s.Put(created("old", "5"), false)
			var notes []string
			note := func(who, before, after string) {
				found := "nothing"
				if has, is := s.Find(key("a")); is {
					found = string(has.GetUID())
				}
				notes = append(notes, who+": "+before+">"+after+" has "+found)
			}
			for _, who := range []string{"1", "2"} {
				s.OnChange(func(before, after *corev1.Pod) { note(who, uid(before), uid(after)) })
			}
			s.Undecodable.OnChange(func(before, after *decode.Failure) { note("undecodable", uid(before), uid(after)) })
			tc.apply(&Mirror[*corev1.Pod]{Store: s, Mine: s.Each})
			expect(t, notes, tc.want...)
		})
	}
}

func TestHandlerOfAnInformer(t *testing.T) {
	var notes []string
	h := Handler(func(before, after *corev1.Pod) { notes = append(notes, uid(before)+">"+uid(after)) })
	h.OnAdd(created("old", "5"), false)
	h.OnUpdate(created("old", "5"), created("old", "6"))
	h.OnUpdate(created("old", "6"), created("new", "7"))
	h.OnDelete(created("new", "8"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a", Obj: created("lost", "9")})
	h.OnAdd(&corev1.Node{}, false)
	h.OnUpdate(created("old", "5"), &corev1.Node{})
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a"})
	expect(t, notes, "->old", "old>old", "old>-", "->new", "new>-", "lost>-")
}
