package machinedeployment

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In a namespace in deletion no set can be created: no rollout begins, and no Event reports an
// error.
func TestNoRolloutBeginsInANamespaceInDeletion(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.server.Refuse("create machinesets", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
		}})
		reported := len(b.reported.List())
		b.server.Forget()
		b.server.Delete("machinesets", "n", b.mine()[0].Name) // as the namespace controller does
		b.pass(150 * time.Second)
		if events := b.reported.List()[reported:]; len(events) > 0 {
			b.Errorf("Events %v, want none", events)
		}
		if tried := b.server.Count("create machinesets"); tried > 5 {
			b.Errorf("tried %d times, want once a minute", tried)
		}
	})
}

// A status that the API server rejects is written again with a back-off, and not as often as its
// changes may be written.
func TestARejectedStatusIsWrittenAgainWithABackOff(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Refuse("patch machinedeployments/status", errors.New("no"))
		b.create()
		b.pass(10 * time.Minute)
		if tried := b.server.Count("patch machinedeployments/status"); tried < 5 || tried > 30 {
			t.Errorf("tried %d times in ten minutes, want about once in a minute in the end", tried)
		}
	})
}
