package replica

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// TestTargetsThatMoveAreOpenedInParallel: a replica that joins gets a third of the target
// clusters, all at once. Each is not served for at most half a second, and at most 200 ms more
// where a request is delayed by these.
func TestTargetsThatMoveAreOpenedInParallel(t *testing.T) {
	t.Parallel()
	const slots, namespaces = 128, 100
	o := replicaOptions(func(o *Options) {
		o.Targets.ByNamespace, o.Fleet.ShardBy, o.Fleet.Slots = true, string(assignment.ByNamespace), slots
	})
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.ownTargets = map[string]*apiserver.Server{}
		for _, server := range []*apiserver.Server{r.control, r.target} {
			apiserver.Add(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
		}
		for i := range namespaces {
			namespace := fmt.Sprint("n-", i)
			r.ownTargets[namespace] = r.target
			r.createClass(namespace)
			r.putTarget(namespace, targettest.SecretOf("https://"+namespace+".example", "t"))
			r.createRoot(&root{namespace: namespace, name: namespace, replicas: 1})
		}
		r.start("fleet-0")
		r.start("fleet-1")
		r.waitCheaply("machines run", func() bool { return r.running("") == namespaces })
		r.waitCheaply("the fleet is at rest", nil)
		var mu sync.Mutex
		released, watched := map[string]time.Time{}, map[string]time.Time{} // by slot Lease, and by namespace
		r.watch = func(q request, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			switch namespace, isTarget := strings.CutSuffix(q.place, "."+atTarget); {
			case q.kind == writes && isSlotLease(q.path) && q.replica != "fleet-2":
				released[q.path[strings.LastIndexByte(q.path, '/')+1:]] = time.Now()
			case q.kind == watches && isTarget && q.replica == "fleet-2" && strings.HasSuffix(q.path, "/nodes"):
				watched[namespace] = time.Now()
			}
		}
		r.start("fleet-2")
		r.waitCheaply("slots have moved", nil)
		mu.Lock()
		defer mu.Unlock()
		var gaps []time.Duration
		for namespace, at := range watched {
			gaps = append(gaps, at.Sub(released[r.leaseOf(namespace, namespace).GetName()]))
		}
		slices.Sort(gaps)
		if len(gaps) < 20 {
			t.Fatalf("got %d target clusters that moved, want a third of %d", len(gaps), namespaces)
		}
		t.Logf("%d target clusters moved, each not served for %s (median), %s (longest)", len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1])
		if half := gaps[len(gaps)/2]; half > 500*time.Millisecond {
			t.Errorf("half of them were not served for %s, want at most half a second", half)
		}
		if longest := gaps[len(gaps)-1]; longest > 700*time.Millisecond {
			t.Errorf("one was not served for %s, want at most 0.7 s", longest)
		}
	})
}
