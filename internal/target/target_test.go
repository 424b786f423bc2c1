package target

import "testing"

func TestSingleIsTheTargetOfEveryNamespace(t *testing.T) {
	cluster := New(nil)
	for _, namespace := range []string{"a", "b"} {
		if got, err := (Single{Cluster: cluster}).For(namespace); got != cluster || err != nil {
			t.Errorf("For(%s): %v, %v", namespace, got, err)
		}
	}
}
