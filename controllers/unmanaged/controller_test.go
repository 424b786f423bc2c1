package unmanaged

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

const (
	namespace = "n"

	others = "example.com/other"
)

// searching is a leader that looks for Nodes without a machine every 10 min, which are annotated
// after 25 min.
type searching struct {
	*testing.T

	control, target *apiserver.Server
	gate            apitest.LeaderGate
	search          *Controller
}

func onSearching(t *testing.T, test func(s *searching)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &searching{T: t, control: apiserver.Recording(), target: apiserver.Recording()}
		s.gate.Leads.Store(true)
		var err error
		s.search, err = New(Config{
			Control: s.control.Metadata(), Target: s.target.Metadata(), Serves: func(n string) bool { return n == namespace },
			Timeout: 25 * time.Minute, Period: 10 * time.Minute, Gate: &s.gate, Clock: clock.RealClock{},
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.search.Run(t.Context())
		test(s)
	})
}

func (s *searching) join(name string, change func(*corev1.Node)) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{others}, Annotations: map[string]string{others: "1"}}}
	if change != nil {
		change(n)
	}
	apiserver.Add(s.target, n)
}

// expect fails unless the Node is annotated, or not, and has what other clients wrote, and our
// finalizer only if it is not annotated.
func (s *searching) expect(name string, annotated bool) {
	s.Helper()
	n := apiserver.Read[corev1.Node](s.target, "nodes", "", name)
	ours := slices.Contains(n.Finalizers, v1alpha1.NodeFinalizerName)
	if got := n.Annotations[v1alpha1.AnnotationNotManaged] == "1"; got != annotated || annotated && ours ||
		n.Annotations[others] != "1" || !slices.Contains(n.Finalizers, others) {
		s.Errorf("Node %s: annotations %v, finalizers %v, want annotated: %t", name, n.Annotations, n.Finalizers, annotated)
	}
}

func finalizer(n *corev1.Node) { n.Finalizers = append(n.Finalizers, v1alpha1.NodeFinalizerName) }

func TestNodesWithoutMachineAreAnnotated(t *testing.T) {
	onSearching(t, func(s *searching) {
		apiserver.Add(s.control, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, Labels: map[string]string{v1alpha1.LabelNode: "managed"}}})
		s.join("managed", finalizer)
		s.join("control-plane", nil)
		s.join("left", finalizer)
		s.join("with-finalizer-again", func(n *corev1.Node) {
			finalizer(n)
			n.Annotations[v1alpha1.AnnotationNotManaged] = "1"
		})
		s.search.Begin()
		time.Sleep(21 * time.Minute)
		s.join("new", nil)
		for _, name := range []string{"managed", "control-plane", "left", "new"} {
			s.expect(name, false)
		}
		time.Sleep(10 * time.Minute)
		for name, annotated := range map[string]bool{"managed": false, "control-plane": true, "left": true, "with-finalizer-again": true, "new": false} {
			s.expect(name, annotated)
		}
		requests := len(s.target.Requests())
		time.Sleep(10 * time.Minute)
		if created := len(s.target.Requests()) - requests; created != 1 {
			s.Errorf("%d requests to the target cluster for Nodes that are annotated, want one list", created)
		}
	})
}

func TestNodesAreNotAnnotated(t *testing.T) {
	for name, change := range map[string]func(s *searching){
		"by a replica that does not lead": func(s *searching) { s.gate.Leads.Store(false) },
		"by a leader that has just begun": func(s *searching) { s.search.Begin() },
		"when the machines could not be read to the end": func(s *searching) {
			s.control.Fault(func(apiserver.Request) error { return errors.New("the connection was closed") })
		},
		"when they change while they are annotated": func(s *searching) {
			s.target.Fault(func(r apiserver.Request) error {
				if r.Verb == "patch" {
					s.target.Edit("nodes", "", "n", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"claimed": "now"}) })
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSearching(t, func(s *searching) {
				s.join("n", finalizer)
				s.search.Begin()
				time.Sleep(21 * time.Minute)
				change(s)
				time.Sleep(10*time.Minute + time.Second)
				s.expect("n", false)
			})
		})
	}
}

// TestNodesOfAllPagesAreAnnotated: more than a page has. In a search that fails at the second page
// no Node counts as seen.
func TestNodesOfAllPagesAreAnnotated(t *testing.T) {
	onSearching(t, func(s *searching) {
		for i := range decode.PageSize + 1 {
			s.join(fmt.Sprintf("n-%04d", i), nil)
		}
		s.search.Begin()
		time.Sleep(31 * time.Minute)
		s.expect("n-0000", true)
		s.expect(fmt.Sprintf("n-%04d", decode.PageSize), true)
	})
}

// The timeout is reached when a search finds a Node without a machine exactly so much later.
func TestNodeIsAnnotatedAtTheTimeout(t *testing.T) {
	onSearching(t, func(s *searching) {
		s.search.cfg.Timeout = 20 * time.Minute
		s.join("n", nil)
		s.search.Begin()
		time.Sleep(20*time.Minute + time.Second)
		s.expect("n", true)
	})
}

// A Node that changes or is deleted while it is annotated is no failure: it is left to the next
// search.
func TestNodeThatChangesMeanwhileIsNotAnError(t *testing.T) {
	for name, change := range map[string]func(s *searching){
		"it is deleted": func(s *searching) { s.target.Remove("nodes", "", "n") },
		"it changes": func(s *searching) {
			s.target.Edit("nodes", "", "n", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"changed": "now"}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSearching(t, func(s *searching) {
				s.join("n", nil)
				s.search.Begin()
				time.Sleep(21 * time.Minute)
				s.target.Forget()
				s.target.Fault(func(r apiserver.Request) error {
					if r.Verb == "patch" {
						change(s)
					}
					return nil
				})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if log := s.target.Log(); !slices.Equal(log, []string{"list nodes", "patch nodes"}) {
					s.Errorf("requests %q, want a list and a patch", log)
				}
			})
		})
	}
}

// A search that does not read all Nodes changes nothing of what is known of them.
func TestNodesOfASearchThatFails(t *testing.T) {
	onSearching(t, func(s *searching) {
		for i := range decode.PageSize + 1 {
			s.join(fmt.Sprintf("n-%04d", i), nil)
		}
		s.search.Begin()
		time.Sleep(time.Minute)
		s.target.Fault(func(r apiserver.Request) error {
			if r.URL.Query().Get("continue") != "" {
				return errors.New("the connection was closed")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := len(s.search.since); got != decode.PageSize+1 {
			s.Errorf("%d Nodes are known, want those of the complete search", got)
		}
	})
}

// A Node that cannot be annotated delays no other one.
func TestNodeThatCannotBeAnnotated(t *testing.T) {
	onSearching(t, func(s *searching) {
		for _, name := range []string{"a", "b", "c"} {
			s.join(name, nil)
		}
		s.target.Fault(func(r apiserver.Request) error {
			if r.Verb == "patch" && r.Name == "b" {
				return errors.New("the connection was closed")
			}
			return nil
		})
		s.search.Begin()
		time.Sleep(31 * time.Minute)
		s.expect("a", true)
		s.expect("b", false)
		s.expect("c", true)
		s.target.Fault(nil)
		time.Sleep(10 * time.Minute)
		s.expect("b", true)
	})
}
