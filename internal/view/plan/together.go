package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Changes are changes in one namespace that are applied at the same moment.
type Changes struct {
	Classes     []ClassChange
	Deployments []Change
}

// Of returns the plan of each change, as it is when the others are applied, too: first those of
// MachineClasses. MachineDeployments do not wait for each other.
func Of(in Input, all Changes) (plans []Plan, err error) {
	ofClasses := in
	for _, c := range all.Deployments {
		ofClasses.Snapshot.Deployments = withObject(ofClasses.Snapshot.Deployments, c.After)
	}
	for _, c := range all.Classes {
		plans = append(plans, OfClass(ofClasses, c))
		in.Snapshot.Classes = withObject(in.Snapshot.Classes, c.After)
	}
	for _, c := range all.Deployments {
		p, err := OfDeployment(in, c)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// withObject returns objects in which one is replaced, or added.
func withObject[T metav1.Object](all []T, changed T) []T {
	others := slices.DeleteFunc(slices.Clone(all), func(o T) bool {
		return o.GetNamespace() == changed.GetNamespace() && o.GetName() == changed.GetName()
	})
	return append(others, changed)
}

// Whole has the plans of objects that are applied at the same moment, and what they do together.
type Whole struct {
	Plans []Plan `json:"plans"`
	// VMs of all plans, how many of them exist at once, and both by zone.
	VMs   VMs    `json:"vms"`
	Most  int    `json:"most"`
	Zones []Zone `json:"zones,omitempty"`
	// Ends reports whether all of them end, and Time is until the last of them.
	Ends bool `json:"ends"`
	Time Time `json:"time"`
	// Notes are remarks about all of them.
	Notes   []string       `json:"notes,omitempty"`
	Missing []view.Missing `json:"missing,omitempty"`
}

// Together returns what plans do together.
func Together(plans []Plan) Whole {
	w := Whole{Plans: plans, Ends: true}
	var changes []VMChange
	var times []Time
	for _, p := range plans {
		w.Ends = w.Ends && p.Ends
		changes, times = append(changes, p.VMChanges...), append(times, p.Time)
		for _, m := range p.Missing {
			if !slices.Contains(w.Missing, m) {
				w.Missing = append(w.Missing, m)
			}
		}
	}
	w.VMs, w.Most, w.Zones = CountVMs(changes)
	w.Time = Longest(times...)
	return w
}

// Result reports whether there is a change, and whether all of it ends.
func (w Whole) Result() (isChange, ends bool) {
	return slices.ContainsFunc(w.Plans, Plan.IsChange), w.Ends
}

// VMChange is a VM that begins to exist, or is gone.
type VMChange struct {
	After time.Duration
	Zone  string
	// By is 1, or -1 for one that is gone.
	By int
	// Existed reports whether it exists before the change.
	Existed bool
}

// CountVMs returns how many VMs there are before and after all changes, how many exist at once, and
// both by zone.
func CountVMs(changes []VMChange) (all VMs, most int, zones []Zone) {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b VMChange) int { return cmp.Compare(a.After, b.After) })
	of := map[string]*Zone{}
	for _, c := range changes {
		z := of[c.Zone]
		if z == nil {
			z = &Zone{Name: c.Zone}
			of[c.Zone] = z
		}
		all.After, z.After = all.After+c.By, z.After+c.By
		most, z.Most = max(most, all.After), max(z.Most, z.After)
		if c.Existed {
			all.Before, z.Before = all.Before+1, z.Before+1
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		zones = append(zones, *of[name])
	}
	return all, most, zones
}

// TimeOf returns the time of a change by the totals of its runs, of which there is one at least.
func TimeOf(runs []time.Duration, source string) Time {
	sorted := slices.Sorted(slices.Values(runs))
	return Time{
		Known: true, Source: source, Runs: runs,
		Median: metav1.Duration{Duration: sorted[len(sorted)/2]}, P90: metav1.Duration{Duration: sorted[len(sorted)*9/10]},
	}
}

// Longest returns the time until all changes are done that begin at the same moment. It is known if
// all times are.
func Longest(times ...Time) Time {
	known, source := true, ""
	var runs []time.Duration
	for _, t := range times {
		known, source = known && t.Known, cmp.Or(source, t.Source)
		for len(runs) < len(t.Runs) {
			runs = append(runs, 0)
		}
	}
	if !known || len(runs) == 0 {
		return Time{Known: known, Source: source}
	}
	for i := range runs {
		for _, t := range times {
			if len(t.Runs) > 0 {
				runs[i] = max(runs[i], t.Runs[i%len(t.Runs)])
			}
		}
	}
	return TimeOf(runs, source)
}

// Add adds the counts of another plan that is carried out at the same time, but for the machines at
// once.
func (m *Machines) Add(other Machines) {
	m.Before, m.After, m.Kept, m.Updated = m.Before+other.Before, m.After+other.After, m.Kept+other.Kept, m.Updated+other.Updated
	m.Created, m.WithoutVM, m.Deleted = m.Created+other.Created, m.WithoutVM+other.WithoutVM, m.Deleted+other.Deleted
	m.Surge, m.Least = m.Surge+other.Surge, m.Least+other.Least
}
