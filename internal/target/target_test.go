package target

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestSingleIsTheTargetOfEveryNamespace(t *testing.T) {
	cluster := New(nil)
	for _, namespace := range []string{"a", "b"} {
		if got, err := (Single{Cluster: cluster}).For(namespace); got != cluster || err != nil {
			t.Errorf("For(%s): %v, %v", namespace, got, err)
		}
	}
}

func TestReturnedNodesAreRemembered(t *testing.T) {
	node := func(uid, version string, bytes int) *corev1.Node {
		is := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: types.UID(uid), ResourceVersion: version, Annotations: map[string]string{"a": strings.Repeat("x", bytes)},
		}}
		is.Status.Images = []corev1.ContainerImage{{Names: []string{strings.Repeat("x", mostWritten)}}}
		return is
	}
	sent := node("u", "1", 0)
	for name, tc := range map[string]struct {
		returned *corev1.Node
		want     string // version
	}{
		"the Node":      {node("u", "2", 0), "2"},
		"another Node":  {node("v", "2", 0), "1"},
		"one too large": {node("u", "2", mostWritten), "1"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := New(nil)
			cluster.Wrote(sent, tc.returned)
			if got := cluster.Written.Newest(sent).ResourceVersion; got != tc.want {
				t.Errorf("the newest Node has version %s, want %s", got, tc.want)
			}
			if uid := tc.returned.UID; uid != sent.UID && cluster.Written.Newest(node(string(uid), "0", 0)).ResourceVersion != "0" {
				t.Error("another Node is remembered")
			}
		})
	}
}
