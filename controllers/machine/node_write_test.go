package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// nodeBench returns a pass over machine m, whose template has a label, and its Node.
func nodeBench(t *testing.T) (c *Controller, p *pass, cluster *apiserver.Server) {
	t.Helper()
	cluster = apiserver.Recording()
	node := apiserver.Add(cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node"}})
	c, p = targetBench(t, cluster, "u")
	p.world.Machine.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"}
	c.nodes.note(p, node)
	return c, p, cluster
}

// nodePatch is a patch of the Node without effect on the test.
func nodePatch(asRead, status bool) *nodesync.Patch {
	return &nodesync.Patch{
		Body: map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": "a"}}}, AsRead: asRead, Status: status,
	}
}

func TestPatchNamesTheUIDOfItsNode(t *testing.T) {
	for _, tc := range []struct {
		patch *nodesync.Patch
		want  string
		sub   string
	}{
		{nodePatch(false, false), `{"metadata":{"labels":{"pool":"a"},"uid":"node"}}`, ""},
		{nodePatch(true, false), `{"metadata":{"labels":{"pool":"a"},"resourceVersion":"1","uid":"node"}}`, ""},
		{nodePatch(true, true), `{"metadata":{"labels":{"pool":"a"},"resourceVersion":"1","uid":"node"}}`, "status"},
	} {
		c, p, cluster := nodeBench(t)
		if err := c.nodes.write(t.Context(), p, tc.patch); err != nil {
			t.Fatal(err)
		}
		if sent := cluster.Requests()[0]; sent.Verb != "patch" || string(sent.Content) != tc.want || sent.Subresource != tc.sub {
			t.Errorf("sent %s to %q, want %s to %q", sent.Content, sent.Subresource, tc.want, tc.sub)
		}
		if diff := cmp.Diff(nodePatch(false, false).Body, tc.patch.Body); diff != "" {
			t.Errorf("the patch that was decided on has changed:\n%s", diff)
		}
		if p.world.Node.Node.Labels["pool"] != "a" {
			t.Errorf("the world has the labels %v", p.world.Node.Node.Labels)
		}
	}
}

// A Node that has changed is read anew, and nothing else happens.
func TestConflictReadsTheNodeAgain(t *testing.T) {
	c, p, cluster := nodeBench(t)
	cluster.Merge("nodes", "", "m", `{"metadata":{"labels":{"changed":"true"}}}`)
	p.world.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
	if err := c.nodes.write(t.Context(), p, nodePatch(true, false)); err != nil || p.world.Node.Node.ResourceVersion != "2" {
		t.Errorf("%v, the world has %+v", err, p.world.Node)
	}
	cluster.Remove("nodes", "", "m")
	cluster.Refuse("patch nodes", apierrors.NewConflict(corev1.Resource("nodes"), "m", errors.New("changed")))
	if err := c.nodes.write(t.Context(), p, nodePatch(true, false)); err != nil || p.world.Node.State != lifecycle.NodeAbsent {
		t.Errorf("%v, the world has %+v", err, p.world.Node)
	}
}

// What the API server does not accept is left out for a while, and tried again when the machine
// changes. A Node that is refused even so is an error.
func TestARefusalIsAFact(t *testing.T) {
	c, p, cluster := nodeBench(t)
	wall := clocktesting.NewFakeClock(now)
	c.nodes.clock = wall
	cluster.Refuse("patch nodes", apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "m", nil))
	refused := func(when string, want bool) {
		t.Helper()
		c.nodes.note(p, p.world.Node.Node)
		if got := p.world.Node.Refused != ""; got != want {
			t.Errorf("%s: refused is %v, want %v", when, got, want)
		}
	}
	if err := c.nodes.claim(t.Context(), p, nodePatch(false, false)); err != nil || p.world.Node.Refused == "" {
		t.Fatalf("%v, refused: %q", err, p.world.Node.Refused)
	}
	if c.nodes.claims.size() > 0 {
		t.Error("a Node that was refused counts as claimed")
	}
	refused("in the next pass", true)
	p.world.Machine.Generation++
	refused("when the machine has changed", false)
	p.world.Machine.Generation--
	wall.Step(refusedRetry)
	refused("later", false)

	wall.SetTime(now)
	refused("once more", true)
	if err := c.nodes.write(t.Context(), p, nodePatch(false, false)); err == nil {
		t.Error("no error although what is left was refused, too")
	}
	refused("after that", false)
}

func TestNodeWriteLimit(t *testing.T) {
	b := newNodeWriteLimit()
	for i := range maxNodeWrites {
		if until := b.until(writesOf{uid: "u"}, now); !until.IsZero() {
			t.Fatalf("write %d has to wait until %s", i, until)
		}
		b.wrote(writesOf{uid: "u"}, now)
	}
	if until := b.until(writesOf{uid: "u"}, now.Add(time.Second)); !until.Equal(now.Add(nodeWriteWindow)) {
		t.Errorf("it may be written again at %s", until)
	}
	if until := b.until(writesOf{uid: "other"}, now); !until.IsZero() {
		t.Errorf("another one has to wait until %s", until)
	}
	if until := b.until(writesOf{uid: "u"}, now.Add(nodeWriteWindow)); !until.IsZero() || len(b.writes) > 0 {
		t.Errorf("long after, it has to wait until %s, and %d are remembered", until, len(b.writes))
	}
	b.wrote(writesOf{uid: "u"}, now)
	b.forget(writesOf{uid: "u"})
	if len(b.writes) > 0 {
		t.Error("it is not forgotten")
	}
}

func TestNodeChangesThatEnqueueTheMachine(t *testing.T) {
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"a": "b"}}}
	was.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":  {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now) }, false},
		"images":     {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }, false},
		"label":      {func(n *corev1.Node) { n.Labels = map[string]string{"a": "c"} }, true},
		"annotation": {func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: "now"} }, true},
		"taint":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, true},
		"capacity": {func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"example.com/dongle": resource.MustParse("4")}
		}, true},
		"condition": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
	} {
		is := was.DeepCopy()
		tc.change(is)
		if got := concernsMachine(was, is); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
