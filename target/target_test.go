package target

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodesAreFollowed(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	client := fake.NewClientset(node)
	cluster := New(client)
	seen := make(chan string, 10)
	if err := cluster.OnNode(func(before, after *corev1.Node) {
		switch {
		case before == nil:
			seen <- "appeared " + after.Name
		case after == nil:
			seen <- "gone " + before.Name
		default:
			seen <- "changed " + after.Name
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := cluster.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("not seen: %s", want)
		}
	}
	expect("appeared one")
	cached, err := cluster.Nodes.Get("one")
	if err != nil || cached.ManagedFields != nil {
		t.Errorf("cached %v, %v", cached, err)
	}
	changed := node.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	if _, err := client.CoreV1().Nodes().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("changed one")
	if err := client.CoreV1().Nodes().Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("gone one")
	if got, err := (Single{Cluster: cluster}).For("any"); got != cluster || err != nil {
		t.Errorf("For: %v, %v", got, err)
	}
	stop()
	cluster.Stop()
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	cluster := New(fake.NewClientset())
	if err := cluster.Start(ctx); err == nil {
		t.Error("no error although nothing was listed")
	}
	cluster.Stop()
}
