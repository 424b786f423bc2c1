package traces

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of spans.
const (
	passPrefix  = "reconcile "
	handOver    = "hand-over"
	takeOver    = "take-over"
	releaseSlot = "release-slot"
)

// Life is the life of one machine.
type Life struct {
	Namespace, Name, UID string
	// Root is the UID by which the life is sampled.
	Root string
	// Tenures are the times under one owner, in their order.
	Tenures []Tenure
	// Missing are the spans that a span of the life links to and that were not found.
	Missing []Ref
}

// Tenure is the time for which a replica has owned a machine without interruption.
type Tenure struct {
	Owner

	// Arrival is the hand-over or take-over by which the machine's slot has come, with its stages; nil when there was none, or when it was
	// not traced.
	Arrival *Span
	// Release is the end of the tenure, as the owner has traced it; nil when the owner has died, or still owns the machine.
	Release *Span
	// Passes are those of the machine, and those of its MachineSet and MachineDeployment that have written it or that it follows from.
	Passes []*Span
}

// Owner is a replica that holds a slot.
type Owner struct{ Replica, Session, Slot, Epoch string }

func ownerOf(s *Span) Owner {
	return Owner{Replica: s.Tags["replica"], Session: s.Tags["session"], Slot: s.Tags["slot"], Epoch: s.Tags["epoch"]}
}

// LifeOf returns the life of a machine, called namespace/name or name, from the first spans of traces. Errors: no span is a pass of it,
// and several machines have the name.
func LifeOf(machine string, first []*Span) (Life, error) {
	life, err := find(machine, first)
	if err != nil {
		return Life{}, err
	}
	tenures := map[Owner]*Tenure{}
	found, followed := map[Ref]bool{}, map[Ref]bool{}
	for _, s := range life.related(first) {
		owner := ownerOf(s)
		if tenures[owner] == nil {
			tenures[owner] = &Tenure{Owner: owner}
		}
		tenures[owner].Passes = append(tenures[owner].Passes, s)
		for _, link := range s.Links {
			followed[link] = true
		}
	}
	for _, s := range first {
		for _, one := range s.all() {
			found[one.Ref] = true
		}
		tenure := tenures[ownerOf(s)]
		switch {
		case tenure == nil:
		case s.Name == handOver || s.Name == takeOver:
			tenure.Arrival = s
		case s.Name == releaseSlot:
			tenure.Release = s
		}
	}
	for _, tenure := range tenures {
		slices.SortStableFunc(tenure.Passes, byStart)
		life.Tenures = append(life.Tenures, *tenure)
	}
	slices.SortFunc(life.Tenures, func(a, b Tenure) int { return byStart(a.Passes[0], b.Passes[0]) })
	for link := range followed {
		if !found[link] {
			life.Missing = append(life.Missing, link)
		}
	}
	slices.SortFunc(life.Missing, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Trace, b.Trace), cmp.Compare(a.Span, b.Span)) })
	return life, nil
}

// find returns whose life it is.
func find(machine string, first []*Span) (Life, error) {
	namespace, name, qualified := strings.Cut(machine, "/")
	if !qualified {
		namespace, name = "", machine
	}
	lives := map[string]Life{} // by UID
	for _, s := range first {
		is := Life{Namespace: s.Tags["k8s.namespace.name"], Name: s.Tags["machine.name"], UID: s.Tags["machine.uid"], Root: s.Tags["root.uid"]}
		if s.Name == passPrefix+"machine" && is.Name == name && (namespace == "" || is.Namespace == namespace) {
			lives[is.UID] = is
		}
	}
	if len(lives) == 0 {
		return Life{}, fmt.Errorf("find the passes of machine %s: there are none: either it is not sampled, or its name is another, or its spans were not sent yet, which takes 5 s", machine)
	}
	if len(lives) > 1 {
		var names []string
		for _, is := range lives {
			names = append(names, is.Namespace+"/"+is.Name+" (UID "+is.UID+")")
		}
		slices.Sort(names)
		return Life{}, fmt.Errorf("find the passes of machine %s: expected one machine, got %s; give the namespace, too", machine, strings.Join(names, ", "))
	}
	return slices.Collect(maps.Values(lives))[0], nil
}

// related returns the passes of the machine, those of other controllers that have written it, and those that a pass follows from.
func (l Life) related(first []*Span) []*Span {
	owns := map[string]*Span{} // the first span of each trace
	for _, s := range first {
		if strings.HasPrefix(s.Name, passPrefix) {
			owns[s.Trace] = s
		}
	}
	related := map[string]*Span{}
	var add func(s *Span)
	add = func(s *Span) {
		if s == nil || related[s.Trace] != nil {
			return
		}
		related[s.Trace] = s
		for _, link := range s.Links {
			add(owns[link.Trace])
		}
	}
	for _, s := range owns {
		if l.concerns(s) {
			add(s)
		}
	}
	return slices.Collect(maps.Values(related))
}

// concerns reports whether a pass is one of the machine, or has a request about it.
func (l Life) concerns(pass *Span) bool {
	return slices.ContainsFunc(pass.all(), func(s *Span) bool {
		uid, named := s.Tags["machine.uid"]
		return s.Tags["machine.name"] == l.Name && s.Tags["k8s.namespace.name"] == l.Namespace && (!named || uid == l.UID)
	})
}
