package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// picture is the state at one moment: in the API, and at the cloud.
type picture struct {
	Deployments []deployment // by name
	Machines    []machine
	Nodes       []node // by name
	VMs         []vm
	Pods        pods
	Fleet       fleet
}

// deployment is a MachineDeployment with its machines, or machines whose MachineDeployment is gone.
type deployment struct {
	Name string
	// Desired is how many machines there should be; none, once it is being deleted.
	Desired int
	// Ending reports whether the object is being deleted.
	Ending bool
	Phases map[v1alpha1.MachinePhase]int
}

// node is a Node.
type node struct {
	Name, Zone string
	Kind       nodeKind
	Ready      bool
	// Configured reports whether its daemon is done with a configuration.
	Configured bool
}

// nodeKind is the kind of kubelet of a Node.
type nodeKind string

const (
	simulatedNode nodeKind = "simulated"
	kubeletNode   nodeKind = "real kubelet"
)

// vm is a VM that has not ended.
type vm struct {
	Zone  string
	State cloudapi.InstanceState
}

// pods are those of the user.
type pods struct {
	Desired, Running, Others int
}

func (d deployment) machines() (n int) {
	for _, count := range d.Phases {
		n += count
	}
	return n
}

func (p picture) desired() (n int) {
	for _, d := range p.Deployments {
		n += d.Desired
	}
	return n
}

func (p picture) machines() (n int) {
	for _, d := range p.Deployments {
		n += d.machines()
	}
	return n
}

// running counts the running machines that are desired.
func (p picture) running() (n int) {
	for _, d := range p.Deployments {
		n += min(d.Phases[v1alpha1.MachineRunning], d.Desired)
	}
	return n
}

func (p picture) readyNodes() (n int) {
	for _, node := range p.Nodes {
		if node.Ready {
			n++
		}
	}
	return n
}

// configuredNodes is how many Nodes are done with a configuration.
func (p picture) configuredNodes() (n int) {
	for _, node := range p.Nodes {
		if node.Configured {
			n++
		}
	}
	return n
}

// machinesOf is how many machines a MachineDeployment has.
func (p picture) machinesOf(name string) int {
	for _, d := range p.Deployments {
		if d.Name == name {
			return d.machines()
		}
	}
	return 0
}

// fits reports whether each MachineDeployment has exactly its desired machines, and none is being
// deleted.
func (p picture) fits() bool {
	return !slices.ContainsFunc(p.Deployments, func(d deployment) bool { return d.Ending || d.machines() != d.Desired })
}

// fact is a row: its subject, a symbol for each machine, and words. Symbols are nil in rows that
// never have any.
type fact struct {
	Label   string
	Symbols []v1alpha1.MachinePhase
	Text    string
}

// machineFacts returns rows about machines, and about the Nodes and VMs that belong to them.
func (p picture) machineFacts() []fact {
	var rows []fact
	for _, d := range p.Deployments {
		var symbols []v1alpha1.MachinePhase
		for _, phase := range inLifeOrder(d.Phases) {
			symbols = append(symbols, slices.Repeat([]v1alpha1.MachinePhase{phase}, d.Phases[phase])...)
		}
		rows = append(rows, fact{Label: d.Name, Symbols: symbols, Text: d.text()})
	}
	return append(rows, p.nodeFact(), p.vmFact(), p.Fleet.ownersFact())
}

// podFacts returns rows about pods, and about the Nodes that they run on.
func (p picture) podFacts() []fact {
	return []fact{p.nodeFact(), {Label: "pods", Text: p.Pods.text()}}
}

// lifeOrder is the order in which a machine's phases are shown: those that have come furthest
// first.
var lifeOrder = []v1alpha1.MachinePhase{
	v1alpha1.MachineRunning, v1alpha1.MachineAvailable, v1alpha1.MachinePending, "", v1alpha1.MachineUnknown,
	v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed, v1alpha1.MachineTerminating,
}

func inLifeOrder(phases map[v1alpha1.MachinePhase]int) []v1alpha1.MachinePhase {
	return slices.SortedFunc(maps.Keys(phases), byLife)
}

func byLife(a, b v1alpha1.MachinePhase) int {
	return cmp.Or(cmp.Compare(slices.Index(lifeOrder, a), slices.Index(lifeOrder, b)), cmp.Compare(a, b))
}

func (d deployment) text() string {
	var words []string
	for _, phase := range inLifeOrder(d.Phases) {
		words = append(words, fmt.Sprintf("%d %s", d.Phases[phase], cmp.Or(string(phase), "new")))
	}
	return listed(words)
}

func (p picture) nodeFact() fact {
	ready, notReady := map[nodeKind]int{}, 0
	for _, n := range p.Nodes {
		if n.Ready {
			ready[n.Kind]++
		} else {
			notReady++
		}
	}
	var words []string
	switch n := ready[kubeletNode]; n {
	case 0:
	case 1:
		words = append(words, "1 real kubelet")
	default:
		words = append(words, fmt.Sprintf("%d real kubelets", n))
	}
	if n := ready[simulatedNode]; n > 0 {
		words = append(words, fmt.Sprintf("%d simulated", n))
	}
	if notReady > 0 {
		words = append(words, fmt.Sprintf("%d not Ready", notReady))
	}
	return fact{Label: "Nodes", Text: listed(words)}
}

func (p picture) vmFact() fact {
	zones, states := map[string]int{}, map[string]int{}
	for _, v := range p.VMs {
		zones[v.Zone]++
		if v.State != cloudapi.StateRunning {
			states[string(v.State)]++
		}
	}
	text := listed(counted(zones, "%d in %s"))
	if len(states) > 0 {
		text += " (" + listed(counted(states, "%d %s")) + ")"
	}
	return fact{Label: "VMs", Text: text}
}

func (p pods) text() string {
	var words []string
	if p.Running > 0 {
		words = append(words, fmt.Sprintf("%d Running", p.Running))
	}
	if p.Others > 0 {
		words = append(words, fmt.Sprintf("%d starting or ending", p.Others))
	}
	return listed(words)
}

// counted formats numbers by name, in the order of the names.
func counted(numbers map[string]int, format string) []string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		words = append(words, fmt.Sprintf(format, numbers[name], name))
	}
	return words
}

func listed(words []string) string {
	return cmp.Or(strings.Join(words, ", "), "none")
}
