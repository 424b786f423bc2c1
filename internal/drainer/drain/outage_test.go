package drain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// The time of an outage is not that of the pods, and what the Node shows right after it is not
// acted on.
func TestOutageForcesNoDrain(t *testing.T) {
	after := born.Add
	outage := reach.Fact{From: after(10 * time.Minute), Back: after(40 * time.Minute)}
	for name, tc := range map[string]struct {
		reach     reach.Fact
		now       time.Duration
		condition corev1.NodeConditionType
		status    corev1.ConditionStatus
		order     bool
		want      Cause
	}{
		"the timeout is over":           {now: time.Hour, want: CauseTimeout},
		"it is over by the outage only": {reach: outage, now: 89 * time.Minute},
		"it is over without the outage": {reach: outage, now: 90 * time.Minute, want: CauseTimeout},
		"it is over right after a short outage": {
			reach: reach.Fact{From: after(59 * time.Minute), Back: after(59*time.Minute + 40*time.Second)}, now: 60*time.Minute + 39*time.Second,
		},
		"and the Node has reported": {
			reach: reach.Fact{From: after(59 * time.Minute), Back: after(59*time.Minute + 40*time.Second)}, now: 60*time.Minute + 40*time.Second,
			want: CauseTimeout,
		},
		"the process has just started": {reach: reach.Fact{Reached: after(time.Hour)}, now: time.Hour + 59*time.Second},
		"the Node is not ready": {
			now: 5 * time.Minute, condition: corev1.NodeReady, status: corev1.ConditionUnknown, want: CauseNotReady,
		},
		"the Node is not ready right after it": {
			reach: outage, now: 44 * time.Minute, condition: corev1.NodeReady, status: corev1.ConditionUnknown,
		},
		"the Node is not ready 5 min after it": {
			reach: outage, now: 45 * time.Minute, condition: corev1.NodeReady, status: corev1.ConditionUnknown, want: CauseNotReady,
		},
		"its file system is read only after it": {
			reach: outage, now: 44 * time.Minute, condition: conditionReadonly, status: corev1.ConditionTrue,
		},
		"the process has just started, and it is so": {
			reach: reach.Fact{Reached: after(20 * time.Minute)}, now: 20*time.Minute + 59*time.Second, condition: conditionReadonly,
			status: corev1.ConditionTrue,
		},
		"the force was requested": {reach: outage, now: 40 * time.Minute, order: true, want: CauseOrder},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			if tc.condition != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: tc.condition, Status: tc.status, LastTransitionTime: metav1.NewTime(born)}}
			}
			order := Order{Since: born, Timeout: time.Hour, Force: tc.order}.Under(tc.reach, after(tc.now))
			is, _ := forced(Facts{Now: after(tc.now), Order: order, Node: node})
			switch {
			case is == nil && tc.want != "":
				t.Errorf("not forced, want %s", tc.want)
			case is != nil && is.cause != tc.want:
				t.Errorf("forced because of %s, want %q", is.cause, tc.want)
			}
			if over := order.IsOver(); over != (tc.want == CauseTimeout || tc.order) {
				t.Errorf("over: %v", over)
			}
		})
	}
}
