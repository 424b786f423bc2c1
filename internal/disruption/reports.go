package disruption

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// Counts are counts of one slot's machines. The zone "" has machines whose zone is not known, and
// not the whole cluster. No scope of them has a namespace.
type Counts map[Scope]Tally

// Add counts machines of a namespace.
func (c Counts) Add(scope Scope, namespace string, n Count) {
	tally := c[scope]
	tally.Count = tally.Add(n)
	if tally.Unready == nil {
		tally.Unready, tally.All = map[string]int{}, map[string]int{}
	}
	tally.All[namespace] += n.Ready + n.NotReady
	if n.NotReady > 0 && namespace != "" {
		tally.Unready[namespace] += n.NotReady
	}
	c[scope] = tally
}

// Own are the counts of the slots that a replica can count now; a slot without machines is present
// and empty.
type Own map[int]Counts

// Reports are the reports of the replicas, as ParseReports returns them.
type Reports struct {
	by      map[string]Own
	texts   map[string]string
	holders []string
}

// maxText is the maximum size of a report. A Lease that is too large could not be renewed.
const maxText = 16 << 10

// maxCount is the most machines of a slot and scope that count. A client that may write Leases can
// write any number, and sums must not overflow.
const maxCount = 1_000_000

// bound returns a reported number, limited to the possible numbers of machines.
func bound(n int) int { return min(max(n, 0), maxCount) }

// wire is the form in which a replica reports its counts: by scope and slot, the numbers of
// machines that are Ready and that are not Ready; by scope, namespace and slot, the numbers of
// machines that are not Ready; and the slots without counts. Replicas of versions without the
// second field read the first.
type wire struct {
	Counts  map[string]map[int][2]int         `json:"counts,omitempty"`
	Unready map[string]map[string]map[int]int `json:"unready,omitempty"`
	Empty   []int                             `json:"empty,omitempty"`
}

// form has the parts that are omitted from a report to limit its size.
type form struct {
	// least is how many machines of a slot and scope must be not Ready for that slot and scope to be
	// reported.
	least int
	// zones is the number of reported zones, the first ones by their turns; machines of other zones
	// count as without zone.
	zones int
	// namespaces is the number of reported namespaces of each scope, those with most machines that are
	// not Ready.
	namespaces int
}

// forms are tried in this order. The number of zones and namespaces is under the control of
// tenants, and must not prevent counts from being reported.
func forms() []form {
	const all = math.MaxInt
	return []form{{0, all, 8}, {0, 8, 8}, {0, 8, 2}, {0, 3, 2}, {0, 0, 2}, {1, 0, 0}}
}

// ParseReports parses the reports of replicas, by their names, and the holder of each slot; ""
// means none. An invalid report counts as missing.
func ParseReports(texts map[string]string, holders []string) Reports {
	return Reports{}.Next(texts, holders)
}

// Next returns what ParseReports does, and parses only reports that differ from those of r: each
// replica parses those of all others, and seldom more than one has changed.
func (r Reports) Next(texts map[string]string, holders []string) Reports {
	next := Reports{by: map[string]Own{}, texts: maps.Clone(texts), holders: slices.Clone(holders)}
	for replica, text := range texts {
		if own, known := r.by[replica]; known && r.texts[replica] == text {
			next.by[replica] = own
			continue
		}
		next.by[replica], _ = read(text) // nil, which has no slots, if it is invalid
	}
	return next
}

func read(text string) (own Own, ok bool) {
	var w wire
	if json.Unmarshal([]byte(text), &w) != nil {
		return nil, false
	}
	own = Own{}
	for _, slot := range w.Empty {
		if slot >= 0 {
			own[slot] = Counts{}
		}
	}
	for name, slots := range w.Counts {
		target, zone, _ := strings.Cut(name, "/")
		for slot, n := range slots {
			if slot < 0 {
				continue
			}
			if own[slot] == nil {
				own[slot] = Counts{}
			}
			unready := w.unready(name, slot)
			own[slot][Scope{Target: target, Zone: zone}] = Tally{
				Count: Count{Ready: bound(n[0]), NotReady: bound(n[1])}, Unready: unready, All: maps.Clone(unready),
			}
		}
	}
	return own, true
}

// unready returns the machines of a slot and scope that are not Ready, by namespace.
func (w wire) unready(scope string, slot int) map[string]int {
	unready := map[string]int{}
	for namespace, slots := range w.Unready[scope] {
		if n := bound(slots[slot]); n > 0 && namespace != "" {
			unready[namespace] = n
		}
	}
	return unready
}

// write is the inverse of read. If the report is too large, parts are omitted, in the order of
// forms: zones, namespaces, and finally slots in which all machines are Ready, so that other
// replicas count a larger share of machines as not Ready than is correct. If that is not enough,
// the slots count as not counted.
func write(own Own) string {
	zones := ranked(own)
	for _, f := range forms() {
		if text, err := json.Marshal(f.of(own, zones)); err == nil && len(text) <= maxText {
			return string(text)
		}
	}
	return "{}"
}

// of returns the report of counts in this form; ranked is the order in which scopes keep their
// zones.
func (f form) of(own Own, ranked []Scope) wire {
	zones := map[Scope]bool{}
	for _, scope := range ranked[:min(f.zones, len(ranked))] {
		zones[scope] = true
	}
	w := wire{Counts: map[string]map[int][2]int{}, Unready: map[string]map[string]map[int]int{}}
	for slot, counts := range own {
		folded := Counts{}
		for scope, tally := range counts {
			if !zones[scope] {
				scope.Zone = ""
			}
			folded[scope] = folded[scope].with(tally)
		}
		reported := false
		for scope, tally := range folded {
			if tally.NotReady >= f.least && tally.Count != (Count{}) {
				w.add(scope, slot, tally)
				reported = true
			}
		}
		if !reported {
			w.Empty = append(w.Empty, slot)
		}
	}
	for _, namespaces := range w.Unready {
		f.cut(namespaces)
	}
	slices.Sort(w.Empty)
	return w
}

// ranked returns the scopes with a zone in the order in which they keep it: by turns. Within a
// turn, those with machines of most namespaces are first, and then those with most Ready machines,
// because such a machine has a Node.
func ranked(own Own) []Scope {
	total, all := Counts{}, map[Scope]map[string]int{}
	for _, counts := range own {
		for scope, tally := range counts {
			if scope.Zone == "" {
				continue
			}
			total[scope] = Tally{Count: total[scope].Add(tally.Count)}
			if all[scope] == nil {
				all[scope] = map[string]int{}
			}
			for namespace, n := range tally.All {
				all[scope][namespace] += n
			}
		}
	}
	turn := turns(all)
	return slices.SortedFunc(maps.Keys(total), func(a, b Scope) int {
		return cmp.Or(
			cmp.Compare(turn[a], turn[b]), cmp.Compare(len(all[b]), len(all[a])),
			cmp.Compare(total[b].Ready, total[a].Ready), cmp.Compare(total[b].NotReady, total[a].NotReady), a.compare(b),
		)
	})
}

// turns returns the turn of each scope, from the numbers of machines by namespace. Namespaces take
// turns: in each turn every namespace contributes the zone with most of its remaining machines. So
// one that has machines in many zones takes no more places than another.
func turns(all map[Scope]map[string]int) map[Scope]int {
	zones := map[string][]Scope{}
	turn := map[Scope]int{}
	for scope, namespaces := range all {
		turn[scope] = math.MaxInt // for scopes without a known namespace
		for namespace := range namespaces {
			zones[namespace] = append(zones[namespace], scope)
		}
	}
	for namespace, scopes := range zones {
		slices.SortFunc(scopes, func(a, b Scope) int {
			return cmp.Or(cmp.Compare(all[b][namespace], all[a][namespace]), a.compare(b))
		})
		for i, scope := range scopes {
			turn[scope] = min(turn[scope], i)
		}
	}
	return turn
}

// cut keeps the namespaces with most machines that are not Ready.
func (f form) cut(namespaces map[string]map[int]int) {
	count := func(namespace string) (n int) {
		for _, unready := range namespaces[namespace] {
			n += unready
		}
		return n
	}
	order := slices.SortedFunc(maps.Keys(namespaces), func(a, b string) int {
		return cmp.Or(cmp.Compare(count(b), count(a)), strings.Compare(a, b))
	})
	for _, namespace := range order[min(f.namespaces, len(order)):] {
		delete(namespaces, namespace)
	}
}

// add adds a slot and scope to the report.
func (w wire) add(scope Scope, slot int, tally Tally) {
	name := scope.Target + "/" + scope.Zone
	if w.Counts[name] == nil {
		w.Counts[name] = map[int][2]int{}
	}
	w.Counts[name][slot] = [2]int{tally.Ready, tally.NotReady}
	for namespace, n := range tally.Unready {
		if w.Unready[name] == nil {
			w.Unready[name] = map[string]map[int]int{}
		}
		if w.Unready[name][namespace] == nil {
			w.Unready[name][namespace] = map[int]int{}
		}
		w.Unready[name][namespace][slot] = n
	}
}

// Report returns the report of a replica: its current counts, and its previous report of other
// slots, until their holders have counted them. last is its last report, which may not be in
// Reports yet.
func Report(replica string, own Own, reports Reports, last string) string {
	all := Own{}
	before, ok := read(last)
	if !ok {
		before = reports.by[replica]
	}
	for slot, counts := range before {
		if slot < len(reports.holders) && !reports.countedByAnother(slot, replica) {
			all[slot] = counts
		}
	}
	maps.Copy(all, own)
	return write(all)
}

// countedByAnother reports whether another replica holds the slot, and has counted it.
func (r Reports) countedByAnother(slot int, replica string) bool {
	holder := r.holders[slot]
	_, counted := r.by[holder][slot]
	return counted && holder != replica
}

// Sum adds up all slots, each by the count that applies to it: this replica's own count, otherwise
// the report of its holder, otherwise, while its holder has not counted it, the worst report: one
// of the reports is that of its last holder. Zones are added up separately and into their cluster.
// complete reports whether there is a count of every slot.
func Sum(own Own, reports Reports) (total map[Scope]Tally, complete bool) {
	total, complete = map[Scope]Tally{}, len(reports.holders) > 0
	for slot, holder := range reports.holders {
		counts, ok := own[slot]
		if !ok {
			counts, ok = reports.by[holder][slot]
		}
		if !ok {
			counts, ok = reports.worst(slot)
		}
		complete = complete && ok
		for scope, n := range counts {
			total[scope.cluster()] = total[scope.cluster()].with(n)
			if scope.Zone != "" {
				total[scope] = total[scope].with(n)
			}
		}
	}
	return total, complete
}

// worst returns, scope by scope, the report of a slot with the most machines that are not Ready,
// and of those the one with the fewest that are.
func (r Reports) worst(slot int) (worst Counts, ok bool) {
	worst = Counts{}
	for _, own := range r.by {
		counts, counted := own[slot]
		ok = ok || counted
		for scope, n := range counts {
			w, known := worst[scope]
			if !known || n.NotReady > w.NotReady || n.NotReady == w.NotReady && n.Ready < w.Ready {
				worst[scope] = n
			}
		}
	}
	return worst, ok
}
