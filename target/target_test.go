package target

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

func TestSingleIsTheTargetOfEveryNamespace(t *testing.T) {
	cluster := New(fake.NewClientset())
	for _, namespace := range []string{"a", "b"} {
		if got, err := (Single{Cluster: cluster}).For(namespace); got != cluster || err != nil {
			t.Errorf("For(%s): %v, %v", namespace, got, err)
		}
	}
}
