package configs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

var start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func decoded[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// config returns a MachineConfig of the pool with a file.
func config(t *testing.T, name, path, content string) *v1alpha1.MachineConfig {
	t.Helper()
	return decoded[v1alpha1.MachineConfig](t, fmt.Sprintf(`{metadata: {name: %s, labels: {role: p}}, spec: {config: {ignition: {version: 3.4.0},
storage: {files: [{path: %s, contents: {source: "data:,%s"}}]}}}}`, name, path, content))
}

// standing returns Nodes of a pool that all have its target, and the objects.
func standing(t *testing.T, nodes int) (plan.Input, Objects) {
	t.Helper()
	pool := decoded[v1alpha1.MachineConfigPool](t, `{metadata: {name: p, uid: p}, spec: {machineConfigSelector: {matchLabels: {role: p}},
nodeSelector: {matchLabels: {role: p}}, maxUnavailable: 1, actions: [{path: /etc/motd, action: None},
{path: /etc/crio, action: Restart, service: crio.service}]}}`)
	o := Objects{Pools: []*v1alpha1.MachineConfigPool{pool}, MachineConfigs: []*v1alpha1.MachineConfig{
		config(t, "00-a", "/etc/motd", "a"), config(t, "01-b", "/etc/crio/crio.conf", "b"), config(t, "02-c", "/etc/sysctl.conf", "c"),
	}}
	target, problem := o.render(pool, false)
	if problem != "" {
		t.Fatal(problem)
	}
	pool.Status.CurrentMachineConfig, pool.Status.CompletedMachineConfig = target.Name, target.Name
	o.Rendered = []*v1alpha1.RenderedMachineConfig{target}
	in := plan.Input{
		Snapshot: view.Snapshot{Now: start, Timeouts: view.DefaultTimeouts()},
		Durations: plan.Durations{
			Drain: plan.Exactly(time.Minute), Update: plan.Exactly(4 * time.Minute), Source: "the test",
		},
	}
	for i := range nodes {
		in.Snapshot.Nodes = append(in.Snapshot.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("node-", i), CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(i) * time.Hour)),
				Labels: map[string]string{"role": "p"},
				Annotations: map[string]string{
					prefix.CurrentConfig(): target.Name, prefix.DesiredConfig(): target.Name, prefix.State(): string(v1alpha1.StateDone),
				},
			},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	return in, o
}

func of(t *testing.T, in plan.Input, o Objects, c Change) plan.Plan {
	t.Helper()
	p, err := Of(in, o, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func story(p plan.Plan) (lines []string) {
	for _, s := range p.Steps {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", s.After.Duration, s.Do, s.Name, s.Why))
	}
	return lines
}

// TestNodesDoWhatTheRulesOfThePoolSay: without a rule they reboot, the oldest first, one after the
// other.
func TestNodesDoWhatTheRulesOfThePoolSay(t *testing.T) {
	for name, tc := range map[string]struct {
		after *v1alpha1.MachineConfig
		want  []string
		took  time.Duration
	}{
		"no rule": {
			config(t, "02-c", "/etc/sysctl.conf", "other"), []string{
				"0s DrainNode node-1: it reboots", "5m0s RebootNode node-1: it reboots", "5m0s DrainNode node-0: it reboots",
				"10m0s RebootNode node-0: it reboots",
			}, 10 * time.Minute,
		},
		"a restart": {
			config(t, "01-b", "/etc/crio/crio.conf", "other"),
			[]string{"10s ApplyNode node-1: it restarts [crio.service]", "20s ApplyNode node-0: it restarts [crio.service]"},
			20 * time.Second,
		},
		"nothing": {
			config(t, "00-a", "/etc/motd", "other"),
			[]string{"10s ApplyNode node-1: nothing is restarted", "20s ApplyNode node-0: nothing is restarted"},
			20 * time.Second,
		},
		"no change": {config(t, "00-a", "/etc/motd", "a"), nil, 0},
	} {
		in, o := standing(t, 2)
		p := of(t, in, o, Change{ConfigBefore: o.MachineConfigs[0], ConfigAfter: tc.after})
		if got := story(p); !slices.Equal(got, tc.want) || p.Time.Median.Duration != tc.took || !p.Ends || !p.Time.Known {
			t.Errorf("%s: got %q in %+v, want %q in %s", name, got, p.Time, tc.want, tc.took)
		}
		if len(p.Pools) != 1 || p.Pools[0].Problem != "" || p.Pools[0].Nodes != 2 {
			t.Errorf("%s: pools %+v", name, p.Pools)
		}
		if content, _ := json.Marshal(p); strings.Contains(string(content), "data:,other") {
			t.Errorf("%s: the plan has the content of a file: %s", name, content)
		}
	}
}

// TestConfigsThatAreNotRendered name the problem, and no Node gets anything.
func TestConfigsThatAreNotRendered(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *Objects) Change
		want   string
	}{
		"invalid": {func(*Objects) Change {
			return Change{ConfigAfter: decoded[v1alpha1.MachineConfig](t, `{metadata: {name: 50-x, labels: {role: p}}, spec: {kernelType: fast}}`)}
		}, "50-x"},
		"paused": {func(o *Objects) Change {
			o.Pools[0].Spec.Paused = true
			return Change{ConfigAfter: config(t, "50-x", "/etc/x", "x")}
		}, "paused"},
		"a KubeletConfig with an unknown field": {func(o *Objects) Change {
			o.Pools[0].Labels = map[string]string{"pool": "p"}
			return Change{KubeletAfter: kubelet(t, "{maxPodz: 3}")}
		}, "maxPodz"},
	} {
		in, o := standing(t, 2)
		p := of(t, in, o, tc.change(&o))
		if len(p.Pools) != 1 || !strings.Contains(p.Pools[0].Problem, tc.want) || len(p.Steps) > 0 {
			t.Errorf("%s: pools %+v, steps %q", name, p.Pools, story(p))
		}
	}
	in, o := standing(t, 1)
	other := config(t, "50-x", "/etc/x", "x")
	other.Labels = map[string]string{"role": "other"}
	if p := of(t, in, o, Change{ConfigAfter: other}); len(p.Pools) > 0 || !p.Creates || !strings.Contains(p.Summary, "no MachineConfigPool") {
		t.Errorf("of no pool: %+v", p)
	}
}

func kubelet(t *testing.T, settings string) *v1alpha1.KubeletConfig {
	t.Helper()
	return decoded[v1alpha1.KubeletConfig](t, `{metadata: {name: k}, spec: {machineConfigPoolSelector: {matchLabels: {pool: p}}, kubeletConfig: `+
		settings+`}}`)
}

// TestKubeletConfigsAreFolded, and what blocks the drains of the Nodes that reboot for them is
// shown.
func TestKubeletConfigsAreFolded(t *testing.T) {
	in, o := standing(t, 1)
	o.Pools[0].Labels = map[string]string{"pool": "p"}
	labels := map[string]string{"app": "db"}
	in.Snapshot.Pods = []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", Labels: labels}, Spec: corev1.PodSpec{NodeName: "node-0"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}}
	in.Snapshot.Budgets = []*policyv1.PodDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, ExpectedPods: 1, DesiredHealthy: 1},
	}}
	p := of(t, in, o, Change{KubeletAfter: kubelet(t, "{maxPods: 50}")})
	if len(p.Pools) != 1 || !p.Pools[0].Reboot || !slices.Equal(p.Pools[0].Changes, []string{"/etc/kubernetes/kubelet.conf"}) {
		t.Errorf("pools %+v", p.Pools)
	}
	want := 2*time.Hour + 5*time.Minute
	if p.Time.Median.Duration != want || len(p.Blocked) != 1 || !slices.Equal(p.Steps[0].Pods, []string{"shop/db-0"}) {
		t.Errorf("got %+v, blocked %+v, steps %+v", p.Time, p.Blocked, p.Steps)
	}
}

// TestNodesThatDoNotServeWait: as many as maxUnavailable allows are away already.
func TestNodesThatDoNotServeWait(t *testing.T) {
	in, o := standing(t, 2)
	in.Snapshot.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
	p := of(t, in, o, Change{ConfigAfter: config(t, "02-c", "/etc/sysctl.conf", "other")})
	if p.Ends || !strings.Contains(p.Waits, "2 Nodes of pool p") || len(p.Steps) > 0 {
		t.Errorf("it ends: %t, waits for %q, steps %q", p.Ends, p.Waits, story(p))
	}
}
