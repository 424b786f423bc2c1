package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A Node of the machine's VM that has joined under another name than the one that the driver has
// returned is named in the machine's status. A Node of another VM is not.
func TestNodeThatJoinsUnderAnotherNameIsNamed(t *testing.T) {
	for id, isNamed := range map[string]bool{"test:///i-1": true, "test:///i-2": false} {
		onBench(t, func(b *bench) {
			b.cloud.Created = func(*fakecloud.Resource) {}
			b.create()
			b.becomes(v1alpha1.MachinePending, time.Minute)
			b.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-1"}, Spec: corev1.NodeSpec{ProviderID: id}})
			b.pass(90 * time.Second)
			if text := b.get().Status.LastOperation.Description; strings.Contains(text,
				`Node "ip-10-0-0-1" has the provider ID of this VM`) != isNamed {
				t.Errorf("%s: the machine reports %q", id, text)
			}
			b.becomes(v1alpha1.MachineFailed, 30*time.Minute)
			if text := b.get().Status.LastOperation.Description; strings.Contains(text, "ip-10-0-0-1") != isNamed {
				t.Errorf("%s: the failed machine reports %q", id, text)
			}
		})
	}
}
