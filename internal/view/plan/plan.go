package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Plan lists the effects of a change on machines.
type Plan struct {
	view.Object

	// With are objects whose changes are planned in this plan, too: configurations of the same pools.
	With []view.Object `json:"with,omitempty"`
	// Creates reports whether the object does not exist yet, and those With it.
	Creates bool `json:"creates,omitempty"`
	// Changes are the fields that differ, each with its effect.
	Changes []FieldChange `json:"changes"`
	// Summary is a sentence about all machines.
	Summary string `json:"summary"`
	// Machines counts what happens to machines, and VMs how many VMs there are.
	Machines Machines `json:"machines"`
	VMs      VMs      `json:"vms"`
	// Steps in their order.
	Steps []Step `json:"steps"`
	// Zones in which machines are created or deleted.
	Zones []Zone `json:"zones,omitempty"`
	// Pools whose configuration changes.
	Pools []Pool `json:"pools,omitempty"`
	// Drains that are blocked.
	Blocked []BlockedDrain `json:"blocked,omitempty"`
	// InForce are holds, freezes, breakers and others that the change meets.
	InForce []view.Trouble `json:"inForce,omitempty"`
	// Ends reports whether the change is done in the end; if not, Waits says why.
	Ends  bool   `json:"ends"`
	Waits string `json:"waits,omitempty"`
	// Time until then.
	Time Time `json:"time"`
	// Notes are remarks about the change, and about what is not known.
	Notes   []string       `json:"notes,omitempty"`
	Missing []view.Missing `json:"missing,omitempty"`
	// VMChanges are when VMs begin to exist and are gone, those that exist before at 0.
	VMChanges []VMChange `json:"-"`
}

// IsChange reports whether the change is one: the object is created, or a field of it differs.
func (p Plan) IsChange() bool { return p.Creates || len(p.Changes) > 0 }

// Machines counts machines.
type Machines struct {
	// Before the change, and After it.
	Before int `json:"before"`
	After  int `json:"after"`
	// Kept are those that stay as they are or are only written; Updated get the new template in place.
	Kept    int `json:"kept"`
	Updated int `json:"updated,omitempty"`
	Created int `json:"created,omitempty"`
	// WithoutVM are those of the created ones that get no VM, as their class does not exist.
	WithoutVM int `json:"withoutVM,omitempty"`
	Deleted   int `json:"deleted,omitempty"`
	// Most is how many VMs exist at once, those in deletion included, and Surge how many of them are
	// beyond the replicas before and after. Least is how many are available at least.
	Most  int `json:"most"`
	Surge int `json:"surge"`
	Least int `json:"least"`
}

// VMs counts VMs, those in deletion included. A machine may have none, such as one whose class does
// not exist.
type VMs struct {
	// Before the change, and After it.
	Before int `json:"before"`
	After  int `json:"after"`
}

// Zone is a zone with how many VMs it has.
type Zone struct {
	// Name of the zone; "" for VMs whose zone is not known.
	Name   string `json:"name"`
	Before int    `json:"before"`
	After  int    `json:"after"`
	// Most is how many it has at once.
	Most int `json:"most"`
}

// Pool is a MachineConfigPool whose configuration changes.
type Pool struct {
	Name string `json:"name"`
	// Before and After are the RenderedMachineConfigs that its Nodes are brought to; they are equal if
	// nothing changes.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Nodes  int    `json:"nodes"`
	// Reboot, Restart and Reload are what each Node does with it.
	Reboot  bool     `json:"reboot,omitempty"`
	Restart []string `json:"restart,omitempty"`
	Reload  []string `json:"reload,omitempty"`
	// Changes are paths and fields that differ.
	Changes []string `json:"changes,omitempty"`
	// By is the MachineDeployment whose strategy brings machines to it; "" where daemons do.
	By string `json:"by,omitempty"`
	// Problem is why its Nodes keep the configuration that they have; "" if they do not.
	Problem string `json:"problem,omitempty"`
}

// Action is the action of a step.
type Action string

// The actions.
const (
	// CreateSet and DeleteSet are about MachineSets.
	CreateSet Action = "CreateSet"
	DeleteSet Action = "DeleteSet"
	// CreateMachine creates a machine, Joined is when its Node is healthy, DeleteMachine begins its
	// deletion, and Gone is when nothing of it is left.
	CreateMachine Action = "CreateMachine"
	Joined        Action = "Joined"
	DeleteMachine Action = "DeleteMachine"
	Gone          Action = "Gone"
	// UpdateMachine writes a machine without an effect on its VM.
	UpdateMachine Action = "UpdateMachine"
	// DrainNode begins the drain of a Node before its update, and UpdateNode is when that has ended.
	DrainNode  Action = "DrainNode"
	UpdateNode Action = "UpdateNode"
	// RebootNode and ApplyNode are when a Node has applied its configuration, with and without a
	// reboot.
	RebootNode Action = "RebootNode"
	ApplyNode  Action = "ApplyNode"
	// Release lets a MachineSet or machine go that does not match the selector.
	Release Action = "Release"
)

// Step is something that happens.
type Step struct {
	// After is when, from the change on, by the median of all durations before.
	After metav1.Duration `json:"after"`
	Do    Action          `json:"do"`
	// Name of the object: a machine or a MachineSet, or a Node. That of a machine that will be created
	// is only known then where its MachineSet does not exist yet.
	Name string `json:"name"`
	// Set is the MachineSet of a machine.
	Set  string `json:"set,omitempty"`
	Zone string `json:"zone,omitempty"`
	// IsNew reports whether the object does not exist before.
	IsNew bool `json:"isNew,omitempty"`
	// Pods are those that leave a Node that is drained.
	Pods []string `json:"pods,omitempty"`
	// Why is a sentence, where it is recorded.
	Why string `json:"why,omitempty"`
}

// BlockedDrain is a Node whose drain is blocked as things are.
type BlockedDrain struct {
	Node    string    `json:"node"`
	Machine string    `json:"machine"`
	Pods    []Blocker `json:"pods"`
	// Forced is after how long the drain is ended by force.
	Forced metav1.Duration `json:"forcedAfter"`
}

// Blocker is a pod that cannot be evicted.
type Blocker struct {
	Pod     string   `json:"pod"`
	Budgets []string `json:"budgets,omitempty"`
	Why     string   `json:"why"`
	// Stays reports whether waiting does not help.
	Stays bool `json:"stays,omitempty"`
}

// Time is how long a change takes until its end, or until it waits for something else.
type Time struct {
	// Known is false if durations that it depends on are not known.
	Known  bool            `json:"known"`
	Median metav1.Duration `json:"median"`
	P90    metav1.Duration `json:"p90"`
	// Source says where durations are from, and what is missing.
	Source string `json:"source,omitempty"`
	// Runs are the totals that Median and P90 are computed from, each of another run.
	Runs []time.Duration `json:"-"`
}

// Settings are those of the fleet that a plan depends on.
type Settings struct {
	// CountMinReady, NoComponentsTaint and KeepFromAutoscaler are as in rollout.World.
	CountMinReady, NoComponentsTaint, KeepFromAutoscaler bool
}

// DefaultSettings are those of a fleet without flags.
func DefaultSettings() Settings { return Settings{KeepFromAutoscaler: true} }

// Change is a change of a MachineDeployment: the one that the API server has, nil if there is none,
// and as it will be.
type Change struct{ Before, After *v1alpha1.MachineDeployment }

// Input has the values that a plan is computed from.
type Input struct {
	// Snapshot has the objects of the namespace: MachineSets and Machines, MachineClasses, the
	// Namespace, the Leases of the fleet, and Nodes, pods and budgets.
	Snapshot  view.Snapshot
	Durations Durations
	Settings  Settings
}

// runs is how many runs the distribution of the total time is computed from, at the most; large
// ones have fewer.
const (
	runs         = strata
	leastRuns    = 5
	mostOfPasses = 4_000_000 // machines that are looked at, in all runs
)

// OfDeployment returns the plan of a change of a MachineDeployment, which has to be valid. Errors:
// the simulation does not end, which is a defect.
func OfDeployment(in Input, c Change) (Plan, error) {
	first := newWorld(in, c, 0)
	if err := first.run(); err != nil {
		return Plan{}, err
	}
	p := first.plan()
	p.Creates = c.Before == nil
	p.Changes = changesOf(c)
	p.Summary = summary(p, c, in.Snapshot.SetsOf(c.After))
	p.InForce = inForce(in.Snapshot, c)
	p.Notes = append(notesOf(in, c, first), p.Notes...)
	p.Missing = in.Snapshot.Missing
	p.Time = Time{Known: first.isTimed, Source: in.Durations.Source}
	if !p.Time.Known {
		return p, nil
	}
	totals := []time.Duration{first.took()}
	count := min(runs, max(leastRuns, mostOfPasses/max(first.looked, 1)))
	if !in.Durations.varies() {
		count = 0
	}
	for i := range count {
		w := newWorld(in, c, i+1)
		if err := w.run(); err != nil {
			return Plan{}, err
		}
		totals = append(totals, w.took())
	}
	if count > 0 {
		totals = totals[1:]
	}
	p.Time = TimeOf(totals, in.Durations.Source)
	return p, nil
}

// varies reports whether a step does not always take the same time.
func (d Durations) varies() bool {
	return slices.ContainsFunc([]Distribution{d.Create, d.Run, d.Delete, d.Drain, d.Update}, func(of Distribution) bool {
		return of.Quantile(0) != of.Quantile(1)
	})
}

// byName orders objects by their names.
func byName[T metav1.Object](objects []T) []T {
	return slices.SortedFunc(slices.Values(objects), func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
}
