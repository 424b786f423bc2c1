package update

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// An API server may send pages without end, of Nodes that are not known or of any size: a live list
// of a cluster with a bound ends with an error.
func TestHostileLiveListEnds(t *testing.T) {
	large := map[string]string{"a": strings.Repeat("x", 4<<20)}
	for name, known := range map[string]bool{"unknown Nodes": false, "known Nodes that are large": true} {
		t.Run(name, func(t *testing.T) {
			pages, cluster := 0, target.New(fake.NewClientset())
			cluster.Name = "a"
			client := fake.NewClientset()
			client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				pages++
				page := &corev1.NodeList{ListMeta: metav1.ListMeta{Continue: strconv.Itoa(pages)}}
				for i := range 4 {
					name := strconv.Itoa(i)
					page.Items = append(page.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: large}})
					if known && pages == 1 {
						cluster.Nodes.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1"}}, false)
					}
				}
				return true, page, nil
			})
			c := &Controller{cfg: Config{Cluster: cluster}, watches: newWatches(client.CoreV1().Nodes(), nil, nil)}
			nodes, err := c.list(t.Context(), "")
			if err == nil || len(nodes) > 8 {
				t.Errorf("%d Nodes of %d pages, and the error %v, want one", len(nodes), pages, err)
			}
		})
	}
}

// Nodes that name machines of other namespaces, or none that exist, cause no request to the control
// cluster where the view is whole.
func TestRootsOfAWholeView(t *testing.T) {
	r := newRoots(objectcache.NewView(), nil, "a", true)
	for _, namespace := range []string{"a", "b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{
			machinev1alpha1.AnnotationMachine: machinev1alpha1.MachineRef{Namespace: namespace, Name: "m", UID: "u"}.String(),
		}}}
		if _, bound := machinev1alpha1.MachineOf(node); !bound {
			t.Fatal("the Node names no machine")
		}
		if root, err := r.of(t.Context(), node); err != nil || root.Name != "" {
			t.Errorf("a machine of namespace %s: got %v, %v, want none", namespace, root, err)
		}
	}
}

// The Nodes of a pool in the cluster of a namespace are those that are cached anyway.
func TestNodesOfANamedCluster(t *testing.T) {
	cluster := target.New(fake.NewClientset())
	cluster.Name = "a"
	for _, role := range []string{"x", "y"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: role, Labels: map[string]string{"role": role}, ResourceVersion: "1"}}
		cluster.Nodes.Apply(node, false)
	}
	c := &Controller{cfg: Config{Cluster: cluster, View: objectcache.NewView()}, watches: newWatches(nil, nil, nil)}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"role": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	nodes, isKnown := c.selected("p", selector)
	if !isKnown || len(nodes) != 1 || nodes[0].Name != "x" {
		t.Errorf("known: %t, %d Nodes", isKnown, len(nodes))
	}
	if a, b := c.ownerOf("u"), (&Controller{cfg: Config{Cluster: target.New(nil)}}).ownerOf("u"); a == b || b != "u" {
		t.Errorf("drains of two Nodes with one UID have the owners %s and %s", a, b)
	}
}
