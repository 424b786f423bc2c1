package main

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// labelSlot is the label by which replicas of the fleet watch the Nodes of their slots.
const labelSlot = "fleet.machine.sapcloud.io/slot"

// ignoredLabels are the labels of the fleet's Nodes that the cluster-autoscaler ignores by itself
// when it compares the Nodes of two groups. Its list has exact keys only; others on it are those of
// single clouds.
func ignoredLabels() map[string]bool {
	return map[string]bool{
		corev1.LabelHostname: true, corev1.LabelTopologyZone: true, corev1.LabelTopologyRegion: true,
		corev1.LabelFailureDomainBetaZone: true, corev1.LabelFailureDomainBetaRegion: true,
		"worker.gardener.cloud/kubernetes-version": true, "node.gardener.cloud/machine-name": true,
	}
}

// similar reports whether the cluster-autoscaler balances two groups with such Nodes. Of capacities
// memory may differ a little, which no Nodes here do; labels that it does not ignore must be on
// both, with the same value.
func similar(a, b *corev1.Node, ignored map[string]bool) bool {
	compared := func(n *corev1.Node) map[string]string {
		left := maps.Clone(n.Labels)
		maps.DeleteFunc(left, func(key, _ string) bool { return ignored[key] })
		return left
	}
	equal := func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }
	return maps.EqualFunc(a.Status.Capacity, b.Status.Capacity, equal) && maps.Equal(compared(a), compared(b))
}

// nodeOf is a Node of a zone, of a machine in a slot; without a slot what the autoscaler expects of
// a group that has no Node.
func nodeOf(zone, slot, storage string) *corev1.Node {
	n := &corev1.Node{}
	n.Labels = map[string]string{
		corev1.LabelHostname: "node-" + zone, corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "sim-1",
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelInstanceTypeStable: "standard-4", labelPool: "workers",
	}
	if slot != "" {
		n.Labels[labelSlot], n.Labels["node.gardener.cloud/machine-name"] = slot, "machine-"+zone
	}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
	return n
}

// TestZonesAreBalancedWithTheFlagsOfTheDocs: with the slot label the groups of two zones are not
// similar, and with the flag of the command line in docs/autoscaler.md they are.
func TestZonesAreBalancedWithTheFlagsOfTheDocs(t *testing.T) {
	withFlag := ignoredLabels()
	for _, flag := range flagsOf(t, "../../docs/autoscaler.md") {
		if label, ok := strings.CutPrefix(flag, "--balancing-ignore-label="); ok {
			withFlag[label] = true
		}
	}
	for name, tc := range map[string]struct {
		a, b          *corev1.Node
		without, with bool
	}{
		"in different slots":                        {nodeOf("sim-1a", "7", "64Gi"), nodeOf("sim-1b", "8", "64Gi"), false, true},
		"in one slot":                               {nodeOf("sim-1a", "7", "64Gi"), nodeOf("sim-1b", "7", "64Gi"), true, true},
		"one group has no Node":                     {nodeOf("sim-1a", "7", "64Gi"), nodeOf("sim-1b", "", "64Gi"), false, true},
		"one has no Node, and no ephemeral-storage": {nodeOf("sim-1a", "7", "64Gi"), nodeOf("sim-1b", "", "0"), false, false},
	} {
		if got := similar(tc.a, tc.b, ignoredLabels()); got != tc.without {
			t.Errorf("%s, without the flag: similar %v, want %v", name, got, tc.without)
		}
		if got := similar(tc.a, tc.b, withFlag); got != tc.with {
			t.Errorf("%s, with the flags of the docs: similar %v, want %v", name, got, tc.with)
		}
	}
}

// flagsOf returns the flags of the command line in a page.
func flagsOf(t *testing.T, page string) []string {
	t.Helper()
	command := regexp.MustCompile(`(?s)cluster-autoscaler \\\n(.*?)` + "```").FindStringSubmatch(read(t, page))
	if command == nil {
		t.Fatalf("%s has no command line of the cluster-autoscaler", page)
	}
	return strings.Fields(strings.ReplaceAll(command[1], `\`, ""))
}

// TestTheFlagIsNamedWhereItIsNeeded: an operator who installs the fleet, or takes machines over,
// may have an autoscaler that needs it.
func TestTheFlagIsNamedWhereItIsNeeded(t *testing.T) {
	const flag = "--balancing-ignore-label=" + labelSlot
	for _, file := range []string{"../../docs/operations/take-over.md", "../../charts/machine-controller-fleet/templates/NOTES.txt"} {
		if !strings.Contains(read(t, file), flag) {
			t.Errorf("%s does not name %s", file, flag)
		}
	}
	if top, _, _ := strings.Cut(read(t, "../../docs/autoscaler.md"), "\n## "); !strings.Contains(top, flag) {
		t.Errorf("the beginning of docs/autoscaler.md does not name %s", flag)
	}
}
