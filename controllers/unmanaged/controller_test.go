package unmanaged

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
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

	cluster *target.Cluster // of the namespace, nil while it is not available
	other   bool            // another manager serves the namespace
}

func onSearching(t *testing.T, test func(s *searching)) {
	t.Helper()
	onSearchingWith(t, func(*searching, *Config) {}, test)
}

func onSearchingWith(t *testing.T, change func(*searching, *Config), test func(s *searching)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &searching{T: t, control: apiserver.Recording(), target: apiserver.Recording()}
		s.gate.Leads.Store(true)
		cfg := Config{
			Control: s.control.Metadata(), Target: s.target.Metadata(), Serves: func(n string) bool { return n == namespace && !s.other },
			Timeout: 25 * time.Minute, Period: 10 * time.Minute, Gate: &s.gate, Clock: clock.RealClock{},
		}
		change(s, &cfg)
		var err error
		s.search, err = New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		go s.search.Run(t.Context())
		test(s)
	})
}

// For returns the cluster of the namespace.
func (s *searching) For(namespace string) (*target.Cluster, error) {
	if s.cluster == nil {
		return nil, &target.UnavailableError{Namespace: namespace}
	}
	return s.cluster, nil
}

// Namespaces returns the namespace while it has a cluster.
func (s *searching) Namespaces() []string {
	if s.cluster == nil {
		return nil
	}
	return []string{namespace}
}

// connect has the namespace have a target cluster, with the Nodes that it has now.
func (s *searching) connect() {
	s.cluster = target.New(s.target.Core())
	for _, node := range apiserver.ReadAll[corev1.Node](s.target, "nodes") {
		s.cluster.Nodes.Apply(node, false)
	}
	s.search.TargetChanged(namespace)
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
		apiserver.Add(s.control, &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, Labels: map[string]string{v1alpha1.LabelNode: "managed"}},
		})
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
		for name, annotated := range map[string]bool{
			"managed": false, "control-plane": true, "left": true, "with-finalizer-again": true, "new": false,
		} {
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
		if got := len(s.search.seen[allNamespaces].since); got != decode.PageSize+1 {
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

// Each Node of the cluster takes its time, and fails.
func TestSearchOfANamespaceEnds(t *testing.T) {
	onSearchingWith(t, func(s *searching, cfg *Config) { cfg.Target, cfg.Targets, cfg.Timeout = nil, s, time.Second }, func(s *searching) {
		for i := range 100 {
			s.join(fmt.Sprintf("n-%03d", i), nil)
		}
		s.connect()
		time.Sleep(time.Minute)
		for took, most := range map[time.Duration]time.Duration{20 * time.Second: longestSearch + 20*time.Second, time.Millisecond: time.Second} {
			s.target.Fault(func(r apiserver.Request) error {
				if r.Verb == "patch" {
					time.Sleep(took)
					return errors.New("the connection was closed")
				}
				return nil
			})
			begun := time.Now()
			_, err := s.search.search(s.Context(), namespace)
			if took := time.Since(begun); err == nil || took > most || strings.Count(err.Error(), "annotate Node") > mostErrors {
				s.Errorf("it took %s, want at most %s; got %v", took, most, err)
			}
		}
	})
}

// Of a cluster that one namespace has, its machines count, and its Nodes are those that are
// watched. One that may be of another namespace, which names the same cluster, is left alone.
func TestNodesOfANamespaceAreAnnotated(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(s *searching)
		want      bool
	}{
		"it is connected all the time": {func(*searching) {}, true},
		"it is connected anew":         {func(s *searching) { s.connect() }, false},
		"it is not available": {func(s *searching) {
			s.cluster = nil
			s.search.TargetChanged(namespace)
		}, false},
		"another manager serves it": {func(s *searching) { s.other = true }, false},
		"another replica has it":    {func(s *searching) { s.gate.Leads.Store(false) }, false},
		"the Node changes unseen": {func(s *searching) {
			s.target.Edit("nodes", "", "left", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"changed": "now"}) })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			onSearchingWith(t, func(s *searching, cfg *Config) { cfg.Target, cfg.Targets = nil, s }, func(s *searching) {
				for _, ns := range []string{namespace, "other"} {
					apiserver.Add(s.control, &v1alpha1.Machine{
						ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: ns, Labels: map[string]string{v1alpha1.LabelNode: "of-" + ns}},
					})
				}
				s.join("of-"+namespace, nil)
				s.join("of-other", nil) // a Node of that name in another cluster
				s.join("left", nil)
				s.join("may-be-another-namespace's", finalizer)
				s.connect()
				time.Sleep(21 * time.Minute)
				tc.meanwhile(s)
				time.Sleep(10 * time.Minute)
				for node, annotated := range map[string]bool{"of-" + namespace: false, "of-other": tc.want ||
					name == "the Node changes unseen", "left": tc.want, "may-be-another-namespace's": false} {
					s.expect(node, annotated)
				}
				if n := s.target.Count("list nodes"); n != 0 {
					s.Errorf("%d lists of Nodes, which are watched", n)
				}
			})
		})
	}
}
