package bynamespace

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests/budget"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// A take-over of many namespaces opens their targets side by side: those that hang delay no other.
func TestThirtyTargetsOfWhichFiveHang(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		const all, hanging = 30, 5
		name := func(i int) string { return fmt.Sprintf("n%d", i) }
		for i := range all {
			server := newCluster(name(i), "node-1")
			server.Fault(func(r apiserver.Request) error {
				select {
				case <-time.After(50 * time.Millisecond):
				case <-r.Context().Done():
				}
				return r.Context().Err()
			})
			server.Away(i < hanging)
			l.clusters["https://"+name(i)+".example"] = server
			l.put(name(i), "target", targettest.SecretOf("https://"+name(i)+".example", "t"))
		}
		begun := time.Now()
		for i := range all {
			l.targets.Use(name(i))
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("to use them took %s", took)
		}
		time.Sleep(500 * time.Millisecond)
		for i := range all {
			want := "node-1"
			if i < hanging {
				want = "it is being connected"
			}
			l.expect(0, name(i), want)
		}
		l.expect(requests.Timeout, name(0), "read Namespace kube-system to identify the cluster: ")
		l.clusters["https://n0.example"].Away(false)
		l.expect(time.Minute, name(0), "node-1")
	})
}

// Requests to a server that fails are not sent, and the target is not available, until one is
// answered. Another namespace that names the same server is not concerned.
func TestTargetWhoseRequestsFail(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		var reports []string
		l.targets.OnChange(func(namespace string) {
			_, err := l.targets.For(namespace)
			reports = append(reports, fmt.Sprint(namespace, " ", err == nil))
		})
		for _, namespace := range []string{"one", "two"} {
			l.put(namespace, "target", targettest.SecretOf("https://a.example", "t"))
			l.targets.Use(namespace)
			l.expect(time.Second, namespace, "node-1")
		}
		reports = nil
		a := l.clusters["https://a.example"]
		a.Refuse("patch nodes", apierrors.NewTooManyRequests("too many", 1))
		cluster, err := l.targets.For("one")
		if err != nil {
			t.Fatal(err)
		}
		patch := func() error {
			_, err := cluster.Client.CoreV1().Nodes().Patch(l.Context(), "node-1", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		}
		for range 10 {
			_ = patch()
		}
		l.expect(0, "one", "its API server has failed 5 writes or more in a row, the last one with: status 429 Too Many Requests")
		l.expect(0, "two", "node-1")
		if sent := a.Count("patch nodes"); sent != 5 || !runner.Waits(patch()) {
			t.Errorf("%d requests were sent, want 5", sent)
		}
		a.Fault(nil)
		l.expect(2*time.Second, "one", "node-1")
		if err := patch(); err != nil {
			t.Error(err)
		}
		if want := []string{"one false", "one true"}; !sameElements(reports, want) {
			t.Errorf("got the reports %v, want %v", reports, want)
		}
	})
}

// The Nodes of a target are read page by page until they are too many, in a list and in a watch.
// None is kept then, and they are read again after a pause.
func TestCredentialsThatAreRejected(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		a := l.clusters["https://a.example"]
		refusal := apierrors.NewUnauthorized("revoked")
		a.Refuse("get namespaces", refusal)
		l.put("one", "target", targettest.SecretOf("https://a.example", "revoked"))
		l.targets.Use("one")
		l.expect(time.Minute, "one", "to identify the cluster: revoked; expected that a Secret target names")
		a.Fault(nil)
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.expect(5*time.Second, "one", "node-1")

		a.Refuse("get nodes", refusal)
		cluster, err := l.targets.For("one")
		if err != nil {
			t.Fatal(err)
		}
		for range budget.Unauthenticated {
			_, _ = cluster.Client.CoreV1().Nodes().Get(l.Context(), "node-1", metav1.GetOptions{})
		}
		l.expect(0, "one", "its API server rejects the credentials: status 401 Unauthorized; expected that a Secret target names")
		a.Fault(nil)
		l.put("one", "target", targettest.SecretOf("https://a.example", "renewed"))
		l.expect(5*time.Second, "one", "node-1")
	})
}

func TestTargetWithTooManyNodes(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		const size, room = 256 << 10, (bytesOfTarget + bytesOfMachine) / (256 << 10)
		server := newCluster("large")
		l.clusters["https://large.example"] = server
		add := func(name string) {
			apiserver.Add(server, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Annotations: map[string]string{"a": strings.Repeat("x", size)}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
				},
				Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"i"}}}, VolumesInUse: []corev1.UniqueVolumeName{"v"}},
			})
		}
		for i := range 2 * room {
			add(fmt.Sprint("n", i))
		}
		l.put("one", "target", targettest.SecretOf("https://large.example", "t"))
		l.targets.Use("one")
		const problem = "its Nodes take more memory than the 32 MiB that are for 1 machines"
		l.expect(time.Second, "one", problem)
		before := server.Count("list nodes")
		if before > room/2 { // of 3 Nodes each, since 12 have too many bytes
			t.Errorf("%d pages were read, want no more than until there are too many", before)
		}
		l.expect(tooManyPause/2, "one", problem)
		if after := server.Count("list nodes"); after != before {
			t.Errorf("%d pages were read in the pause", after-before)
		}
		for i := range 2*room - 2 {
			server.Remove("nodes", "", fmt.Sprint("n", i))
		}
		l.expect(tooManyPause, "one", fmt.Sprintf("n%d n%d", 2*room-2, 2*room-1))
		cluster, err := l.targets.For("one")
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range cluster.Nodes.All() {
			if node.ManagedFields != nil || node.Status.Images != nil || node.Status.VolumesInUse != nil {
				t.Errorf("Node %s is not trimmed", node.Name)
			}
		}
		for i := range 2*room - 2 {
			add(fmt.Sprint("n", i))
		}
		l.expect(time.Second, "one", problem)
		if n := cluster.Nodes.Len(); n != 0 {
			t.Errorf("%d Nodes are kept", n)
		}
	})
}

// A tenant changes the Secret each second, and each version is invalid in another way.
func TestSecretThatChangesAllTheTime(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		reports := 0
		l.targets.OnChange(func(string) { reports++ })
		l.targets.Use("one")
		const seconds = 200
		for i := range seconds {
			l.put("one", "target", targettest.SecretOf(fmt.Sprintf("https://a.n%d.svc", i), "t"))
			time.Sleep(time.Second)
		}
		if most := readBurst + seconds/int(readInterval/time.Second) + 1; reports < readBurst || reports > most {
			t.Errorf("%d reports, want at most %d", reports, most)
		}
		if len(l.log) != 1 || !strings.Contains(l.log[0], "Target cluster is not available") {
			t.Errorf("got the log %q, want one line", l.log)
		}
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.expect(5*time.Second, "one", "node-1")
		if len(l.log) != 2 || !strings.Contains(l.log[1], "Target cluster is available again") {
			t.Errorf("got the log %q, want that it is available", l.log)
		}
		for range seconds { // of a Secret that is invalid in the same way each second time
			l.put("one", "target", nil)
			time.Sleep(readInterval)
			l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
			time.Sleep(readInterval)
		}
		if most := lineBurst + int(2*seconds*readInterval/lineInterval) + 1; len(l.log) > most {
			t.Errorf("%d lines in the log, want at most %d", len(l.log), most)
		}
	})
}

// Metrics of targets have a series for each reason, and none for a namespace.
func TestMetricsOfTargets(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		l.put("one", "target", targettest.SecretOf("https://b.example", "t"))
		l.put("two", "target", targettest.SecretOf("https://a.example", "t"))
		l.first["two"] = "another"
		for _, namespace := range []string{"one", "two", "three"} {
			l.targets.Use(namespace)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		registry := prometheus.NewRegistry()
		registry.MustRegister(Collect(l.targets)...)
		want := `
# HELP mcf_open_targets Namespaces whose own target cluster this replica is connected to, or tries to be.
# TYPE mcf_open_targets gauge
mcf_open_targets 3
# HELP mcf_target_nodes Nodes of target clusters of namespaces that are in memory.
# TYPE mcf_target_nodes gauge
mcf_target_nodes 2
# HELP mcf_unavailable_targets Namespaces whose own target cluster is open and cannot be used, so that their machines wait.
# TYPE mcf_unavailable_targets gauge
mcf_unavailable_targets{reason="identity"} 1
mcf_unavailable_targets{reason="nodes"} 0
mcf_unavailable_targets{reason="opening"} 0
mcf_unavailable_targets{reason="secret"} 1
mcf_unavailable_targets{reason="server"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
