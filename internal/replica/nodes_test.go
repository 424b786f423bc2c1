package replica

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	// healthTimeout is for how long a Node may be not Ready before its machine fails.
	healthTimeout = 45 * time.Second
	// inTime bounds after what time a Node recovers in time. The rest is for watches that show it
	// late.
	inTime = 15 * time.Second
	// truncation is by how much a machine may fail too early, because its status has times in whole
	// seconds.
	truncation = 2 * time.Second
)

// sicken makes a Node not Ready, or unknown, until it recovers: in time, or too late.
func (t *trial) sicken() {
	all := slices.DeleteFunc(t.cloud.Live(), func(v fakecloud.Resource) bool {
		return !v.Joined || v.MachineUID == "" || v.ControlCluster == anotherCluster
	})
	if len(all) == 0 {
		return
	}
	node, lasts := all[t.random.IntN(len(all))].NodeName, t.between(time.Second, inTime)
	if t.random.IntN(3) == 0 {
		lasts = t.between(healthTimeout, 2*healthTimeout)
	}
	t.sickenFor(node, lasts)
}

// sickenAtRest turns the Node of a machine of a root not Ready until it recovers in time. The
// machines have to stay.
func (t *trial) sickenAtRest(r *root) *root {
	for _, m := range t.control.List("machines") {
		if node := m.GetLabels()[v1alpha1.LabelNode]; m.GetNamespace() == r.namespace && m.GetLabels()["root"] == r.name && node != "" &&
			!r.away {
			r.changed, r.keeps, r.ends = time.Now(), t.uidsOf(r, "machines"), nil
			r.settles = r.changed.Add(inTime + truncation)
			t.sickenFor(node, inTime)
			return r
		}
	}
	return nil
}

func (t *trial) sickenFor(node string, lasts time.Duration) {
	status := []string{"False", "Unknown"}[t.random.IntN(2)]
	t.logf("Ready of Node %s is %s for %s", node, status, lasts)
	t.setReady(status, node)
	t.later = append(t.later, event{time.Now().Add(lasts), func() { t.setReady("True", node) }})
}

// notReady is since when Nodes are not Ready, by name.
type notReady struct {
	mu     sync.Mutex
	since  map[string]time.Time
	failed map[types.UID]bool // machines that have failed
}

// machineHealth contains what a Machine reports of its health. Others of its fields need not
// decode.
type machineHealth struct {
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		CurrentStatus struct{ Phase v1alpha1.MachinePhase }
		LastOperation struct{ Type v1alpha1.MachineOperationType }
	}
}

// followHealth checks from now on that no machine fails for its health before its Node was not
// Ready for the health timeout. It is called again after a restore, which is not followed.
func (t *trial) followHealth() {
	u := &t.unready
	if u.since == nil {
		u.since, u.failed = map[string]time.Time{}, map[types.UID]bool{}
	}
	apiserver.Follow(t.target, "nodes", func(node *corev1.Node, gone bool) {
		u.mu.Lock()
		defer u.mu.Unlock()
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if _, known := u.since[node.Name]; gone || !ready && !known {
			u.since[node.Name] = time.Now()
		} else if ready {
			delete(u.since, node.Name)
		}
	})
	begun := time.Now()
	apiserver.Follow(t.control, "machines", func(m *machineHealth, _ bool) {
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || m.Status.LastOperation.Type == v1alpha1.MachineOperationCreate ||
			m.Namespace == forger {
			return
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if since, unready := u.since[m.Name]; !u.failed[m.UID] && time.Now().After(begun) &&
			(!unready || time.Since(since) < healthTimeout-truncation) {
			t.fail("machine %s has failed, and its Node was not Ready since %s only", m.Name, since)
		}
		u.failed[m.UID] = true
	})
}
