package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// phases of machines, by number.
type phases = map[v1alpha1.MachinePhase]int

// growing is a picture in the middle of a scale-up.
func growing() picture {
	return picture{
		Deployments: []deployment{
			{Name: "kubelets-a", Desired: 2, Phases: phases{v1alpha1.MachineRunning: 1, v1alpha1.MachinePending: 1}},
			{Name: "workers-b", Desired: 3, Phases: phases{"": 1, v1alpha1.MachineCrashLoopBackOff: 1, v1alpha1.MachineRunning: 1}},
		},
		Nodes: []node{
			{Name: "kubelets-a-1", Zone: "sim-1a", Kind: kubeletNode, Ready: true},
			{Name: "workers-b-1", Zone: "sim-1b", Kind: simulatedNode, Ready: true},
			{Name: "workers-b-2", Zone: "sim-1b", Kind: simulatedNode},
		},
		VMs: []vm{
			{Zone: "sim-1b", State: cloudapi.StateRunning},
			{Zone: "sim-1a", State: cloudapi.StateRunning},
			{Zone: "sim-1b", State: cloudapi.StatePending},
		},
		Pods: pods{Desired: 4, Running: 2, Others: 1},
		Fleet: fleet{Replicas: []replica{
			{Name: "fleet-0", Machines: make([]v1alpha1.MachinePhase, 2)},
			{Name: "fleet-1"},
			{Name: "fleet-2", Machines: make([]v1alpha1.MachinePhase, 3)},
		}},
	}
}

func TestFrame(t *testing.T) {
	p := growing()
	g := settled(1)
	for name, test := range map[string]struct {
		scene scene
		want  []string
	}{
		"waiting": {
			scene{progress: g.reach(p), facts: g.facts(p), elapsed: 2345 * time.Millisecond},
			[]string{
				"    ━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  2 of 5 machines run  2.3 s",
				"      kubelets-a  ●◐   1 Running, 1 Pending",
				"      workers-b   ●○●  1 Running, 1 new, 1 CrashLoopBackOff",
				"      Nodes       1 real kubelet, 1 simulated, 1 not Ready",
				"      VMs         1 in sim-1a, 2 in sim-1b (1 pending)",
				"      owners      fleet-0 of 2, fleet-2 of 3",
			},
		},
		"reached": {
			scene{progress: progress{Done: 4, Total: 4, What: "pods run"}, facts: p.podFacts(), outcome: reached},
			[]string{
				"    ✓ 4 of 4 pods run  0.0 s",
				"      Nodes  1 real kubelet, 1 simulated, 1 not Ready",
				"      pods   2 Running, 1 starting or ending",
			},
		},
		"replicas": {
			scene{progress: progress{What: "slots are held"}, facts: []fact{
				{Label: "fleet-0", Symbols: []v1alpha1.MachinePhase{}, Text: "9 slots"},
				{Label: "fleet-1", Symbols: []v1alpha1.MachinePhase{v1alpha1.MachineRunning, v1alpha1.MachineRunning}, Text: "8 slots"},
				{Label: "machines", Text: "2 of 2"},
			}, outcome: reached},
			[]string{
				"    ✓ 0 of 0 slots are held  0.0 s",
				"      fleet-0       9 slots",
				"      fleet-1   ●●  8 slots",
				"      machines  2 of 2",
			},
		},
		"missed, and nothing there": {
			scene{
				progress: progress{Done: 0, Total: 3, What: "machines run"}, facts: picture{}.machineFacts(), elapsed: time.Minute, outcome: missed,
			},
			[]string{
				"    ✗ 0 of 3 machines run  60.0 s",
				"      Nodes   none",
				"      VMs     none",
				"      owners  none",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, frame(false, test.scene)); diff != "" {
				t.Errorf("frame (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFrameInColour(t *testing.T) {
	plain := frame(false, scene{progress: progress{Total: 2}, facts: growing().machineFacts()})
	for i, line := range frame(true, scene{progress: progress{Total: 2}, facts: growing().machineFacts()}) {
		if !strings.Contains(line, "\x1b[") || strings.Count(line, "\x1b[0m")*2 != strings.Count(line, "\x1b[") {
			t.Errorf("line %d: want colours, each of them ended, got %q", i, line)
		}
		if got := uncoloured(line); got != plain[i] {
			t.Errorf("line %d: want the same text as without colours, %q, got %q", i, plain[i], got)
		}
	}
}

// uncoloured takes the escape sequences out.
func uncoloured(line string) string {
	var text strings.Builder
	for i, part := range strings.Split(line, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		text.WriteString(part)
	}
	return text.String()
}

func TestLine(t *testing.T) {
	p := growing()
	got := line(scene{progress: podsRun().reach(p), facts: podsRun().facts(p), outcome: missed})
	want := "✗ 2 of 4 pods run; Nodes: 1 real kubelet, 1 simulated, 1 not Ready; pods: 2 Running, 1 starting or ending"
	if got != want {
		t.Errorf("line:\n got %q\nwant %q", got, want)
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct{ done, total, want int }{
		{0, 3, 0}, {1, 3, barWidth / 3}, {3, 3, barWidth}, {4, 3, barWidth}, {0, 0, 0}, {1, 0, 0},
	} {
		got := bar(false, test.done, test.total)
		if filled := strings.Count(got, "━"); filled != test.want || strings.Count(got, "╌") != barWidth-test.want {
			t.Errorf("bar(%d, %d) = %q: want %d cells filled", test.done, test.total, got, test.want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		line  string
		width int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abc", 2, "ab"},
		{"━━━", 2, "━━"},
		{"a\x1b[31mbc\x1b[0m", 2, "a\x1b[31mb\x1b[0m"},
		{"abc", 0, ""},
		{"abc", -1, ""},
	} {
		if got := clip(test.line, test.width); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.line, test.width, got, test.want)
		}
	}
}

func TestSummary(t *testing.T) {
	got := summary(false,
		[]timing{{Name: "Start", Took: 4 * time.Second}, {Name: "Look", Took: time.Second}, {Name: "End"}}, 5123*time.Millisecond)
	want := []string{
		"    Start     4.0 s  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━",
		"    Look      1.0 s  ━━━━━━━━",
		"    End       0.0 s",
		"    in all    5.1 s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestWhereabouts(t *testing.T) {
	nodes := []node{
		{Name: "a-1", Zone: "sim-1a", Kind: simulatedNode},
		{Name: "kubelets-1", Zone: "sim-1b", Kind: kubeletNode},
	}
	got := whereabouts(false, nodes, map[string][]string{"kubelets-1": {"p", "q"}})
	want := []string{
		"      NODE        ZONE    KIND          PODS",
		"      kubelets-1  sim-1b  real kubelet  p q",
		"      a-1         sim-1a  simulated     -",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("whereabouts (-want +got):\n%s", diff)
	}
}
