package replica

import (
	"strings"
	"testing"
)

func TestKubeconfigsThatCannotBeReadAreNamedByTheirFlag(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tc := range []struct {
		from Kubeconfigs
		want string
	}{
		{Kubeconfigs{Target: "/nope"}, "--target-kubeconfig=/nope: read the kubeconfig: stat /nope"},
		{Kubeconfigs{Control: "/nope", Target: NoTarget}, "--control-kubeconfig=/nope: read the kubeconfig: stat /nope"},
		{Kubeconfigs{}, "--target-kubeconfig=: read the kubeconfig: unable to load in-cluster configuration"},
	} {
		if _, _, err := tc.from.Read(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("want an error that begins with %s, got: %v", tc.want, err)
		}
	}
}
