package harness

import (
	"os"
	"testing"
)

// KubeletsWork reports whether this computer can run real kubelets, and logs why not. Where they
// are required (LAB_REQUIRE_KUBELET=1), that they do not work fails the test.
func KubeletsWork(t *testing.T) bool {
	t.Helper()
	reason := NoKubelets(t.Context())
	if reason == "" {
		return true
	}
	if os.Getenv("LAB_REQUIRE_KUBELET") == "1" {
		t.Fatal(reason)
	}
	t.Log(reason)
	return false
}
