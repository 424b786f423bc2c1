package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Bounds of what one state has.
const (
	// MostTiles is how many machines have a tile. Counts are those of all.
	MostTiles = 20_000
	// MostRows is how many rows a list has.
	MostRows = 200
	// MostReplicas is how many replicas are shown.
	MostReplicas = 200
	// MostUnread is how many texts about what could not be read there are.
	MostUnread = 20
	// mostText is how many bytes a text of a row has, and mostNote those of a tile.
	mostText, mostNote = 512, 256
	// mostName is how many bytes a name has. API servers do not check those of owners, nor phases.
	mostName = 253
	// mostBytes is how many bytes the texts of all tiles have, as they are sent.
	mostBytes = 12 << 20
)

// Input has all that a state is computed from.
type Input struct {
	view.Snapshot

	// Replica is the one that serves the page, and Version that of its binary.
	Replica, Version string
	// Targets are the target clusters that this replica knows.
	Targets []view.TargetRead
	// Receipts are the last ones of this replica, and Gone the deletions of machines that were
	// observed to end. Both have the latest last.
	Receipts []receipt.Receipt
	Gone     []Gone
	// Since is from when on the objects have been watched, and ends of machines observed.
	Since time.Time
	// Loaded reports whether all objects have been read; Unread has what could not be, with the
	// reason.
	Loaded bool
	Unread []string
}

// Gone is a machine that has ended, as it was last seen.
type Gone struct {
	view.Deletion

	At time.Time
}

// State contains all that the page shows at one moment.
type State struct {
	About     About          `json:"about"`
	Counts    Counts         `json:"counts"`
	Fleet     Fleet          `json:"fleet"`
	Targets   List[Target]   `json:"targets"`
	Pools     List[Pool]     `json:"pools"`
	Rollouts  List[Rollout]  `json:"rollouts"`
	Drains    List[Drain]    `json:"drains"`
	Breakers  List[Trouble]  `json:"breakers"`
	Orphans   List[Orphans]  `json:"orphans"`
	Deletions List[Deletion] `json:"deletions"`
	Troubles  List[Trouble]  `json:"troubles"`
	Tiles     []Tile         `json:"-"`
}

// About says what serves the page, and what it could not read.
type About struct {
	Replica string `json:"replica"`
	Version string `json:"version"`
	Loading bool   `json:"loading"`
	// Since is from when on the replica has observed machines to end, and Receipts is how many of its
	// own receipts the state is computed from.
	Since    int64 `json:"since,omitempty"`
	Receipts int   `json:"receipts"`

	Unread []string `json:"unread,omitempty"`
}

// List is a list with a bound.
type List[T any] struct {
	Rows []T `json:"rows"`
	// All is how many there are, of which Rows has the first ones.
	All int `json:"all"`
}

// listOf returns the first rows of a list.
func listOf[A, B any](all []A, row func(A) B) List[B] {
	l := List[B]{Rows: []B{}, All: len(all)}
	for _, a := range all[:min(len(all), MostRows)] {
		l.Rows = append(l.Rows, row(a))
	}
	return l
}

// Trouble is a reason why an object is not as it should be. Since is in seconds since 1970, 0 if it
// is not known, as all times of a state.
type Trouble struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Level     string `json:"level"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
	Since     int64  `json:"since,omitempty"`
}

func troubleOf(t view.Trouble) Trouble {
	return Trouble{
		Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, Level: string(t.Level), Reason: bounded.Text(t.Reason, mostNote),
		Message: bounded.Text(t.Message, mostText), Since: seconds(t.Since),
	}
}

// Of returns the state of an input. While that is not loaded, it shows nothing but that: objects
// that were not read yet do not look like ones that do not exist.
func Of(in Input) State {
	if !in.Loaded {
		in.Snapshot = view.Snapshot{Now: in.Now, Missing: []view.Missing{{What: view.MissingLeases, Why: "they were not read yet"}}}
		in.Targets, in.Receipts, in.Gone = nil, nil, nil
	}
	in.Missing = append(slices.Clone(in.Missing), view.Missing{What: view.MissingNodes, Why: "the page reads no Nodes"})
	// Views sort machines, which costs little where they are sorted.
	in.Machines = slices.SortedFunc(slices.Values(in.Machines), func(a, b *v1alpha1.Machine) int {
		return compareNames(a.Namespace, a.Name, b.Namespace, b.Name)
	})
	status, fleet := view.StatusOf(in.Snapshot), view.FleetOf(in.Snapshot)
	tiles, counts := tilesOf(in.Snapshot, zonesOf(in.Snapshot))
	counts.Deployments, counts.Sets, counts.RollingOut = status.Deployments, status.Sets, status.RollingOut
	s := State{
		About: About{
			Replica: in.Replica, Version: in.Version, Loading: !in.Loaded, Since: seconds(in.Since), Receipts: len(in.Receipts),
			Unread: unreadOf(in.Unread),
		},
		Fleet:   fleetOf(fleet, in.Machines),
		Targets: listOf(view.TargetsOf(in.Snapshot, in.Targets).Targets, targetOf),
		Pools:   poolsOf(in.Snapshot),
		Drains:  listOf(view.DrainingOf(in.Snapshot), drainOf),
		Orphans: listOf(view.OrphansOf(in.Snapshot), func(o view.Orphans) Orphans {
			return Orphans{o.Namespace, o.Class, o.Suspects, o.Approved, int64(o.Oldest.Duration / time.Minute)}
		}),
		Deletions: deletionsOf(in),
		Tiles:     tiles,
	}
	var breakers, troubles []view.Trouble
	for _, t := range status.Troubles {
		switch t.Level {
		case view.Error:
			counts.Errors++
		case view.Warning:
			counts.Warnings++
		case view.Note:
		}
		if t.Reason == circuitBreaker {
			breakers = append(breakers, t)
		}
		if t.Level != view.Note {
			troubles = append(troubles, t)
		}
	}
	s.Breakers, s.Troubles = listOf(breakers, troubleOf), listOf(troubles, troubleOf)
	s.Rollouts = rolloutsOf(in.Snapshot)
	s.Counts = counts
	return s
}

// unreadOf returns the first texts about what could not be read, and how many more there are.
func unreadOf(all []string) (texts []string) {
	for _, text := range all[:min(len(all), MostUnread)] {
		texts = append(texts, bounded.Text(text, mostText))
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}

// Orphans are the orphans that a MachineClass records as suspected.
type Orphans struct {
	Namespace string `json:"namespace"`
	Class     string `json:"class"`
	Suspects  int    `json:"suspects"`
	Approved  int    `json:"approved,omitempty"`
	// Minutes is the age of the oldest suspicion.
	Minutes int64 `json:"minutes"`
}

// Target is a target cluster.
type Target struct {
	Namespace string `json:"namespace,omitempty"`
	Server    string `json:"server,omitempty"`
	// State is "answers", "away", or "" where this replica does not know.
	State    string `json:"state,omitempty"`
	Why      string `json:"why,omitempty"`
	Level    string `json:"level,omitempty"`
	Machines int    `json:"machines"`
}

func targetOf(t view.Target) Target {
	is := Target{
		Namespace: t.Namespace, Server: bounded.Text(t.Server, mostText), Why: bounded.Text(t.Why, mostText), Level: string(t.Level),
		Machines: t.Machines,
	}
	if t.Reachable != nil {
		is.State = "away"
		if *t.Reachable {
			is.State = "answers"
		}
	}
	return is
}

// Drain is a drain that the fleet has reported.
type Drain struct {
	Namespace string `json:"namespace"`
	Machine   string `json:"machine"`
	Node      string `json:"node"`
	Why       string `json:"why"`
	Since     int64  `json:"since,omitempty"`
	Forced    int64  `json:"forced,omitempty"`
	Blocked   bool   `json:"blocked,omitempty"`
	Report    string `json:"report"`
}

func drainOf(d view.Draining) Drain {
	return Drain{
		Namespace: d.Namespace, Machine: d.Name, Node: bounded.Text(d.Node, mostName), Why: bounded.Text(d.Why, mostText),
		Since: seconds(d.Since), Forced: seconds(d.Forced), Blocked: d.Blocked, Report: bounded.Text(d.Report, mostText),
	}
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func ownerOf(o metav1.Object) (kind, name string) {
	if c := metav1.GetControllerOfNoCopy(o); c != nil {
		return c.Kind, c.Name
	}
	return "", ""
}

func compareNames(aNamespace, aName, bNamespace, bName string) int {
	return cmp.Or(cmp.Compare(aNamespace, bNamespace), cmp.Compare(aName, bName))
}
