package brake

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Counts are counts of one slot's machines. The zone "" has those whose zone is not known, and not the whole cluster.
type Counts map[Scope]Count

// Own are the counts of the slots that a replica can count now; a slot without machines is there and empty.
type Own map[int]Counts

// Told is what the replicas have told, as Hear reads it.
type Told struct {
	by      map[string]Own
	holders []string
}

// maxText bounds what a replica tells. A Lease that is too large could not be renewed.
const maxText = 16 << 10

// wire is how a replica tells its counts: by scope and slot the numbers of machines that are Ready and that are not, and
// the slots without any.
type wire struct {
	Counts map[string]map[int][2]int `json:"counts,omitempty"`
	Empty  []int                     `json:"empty,omitempty"`
}

// Hear reads what replicas have told, by their names, and who holds which slot; "" is nobody. What cannot be read counts as
// not told.
func Hear(texts map[string]string, holders []string) Told {
	told := Told{by: map[string]Own{}, holders: slices.Clone(holders)}
	for replica, text := range texts {
		if own, ok := read(text); ok {
			told.by[replica] = own
		}
	}
	return told
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
			own[slot][Scope{Target: target, Zone: zone}] = Count{Ready: max(n[0], 0), NotReady: max(n[1], 0)}
		}
	}
	return own, true
}

// write is the opposite of read. If there is too much to tell, zones in which all is well are left out, which makes others
// see more trouble than there is, and then all: then the slots count as not counted.
func write(own Own) string {
	for _, least := range []int{0, 1} {
		w := wire{Counts: map[string]map[int][2]int{}}
		for slot, counts := range own {
			told := false
			for scope, n := range counts {
				if n.NotReady < least || n == (Count{}) {
					continue
				}
				name := scope.Target + "/" + scope.Zone
				if w.Counts[name] == nil {
					w.Counts[name] = map[int][2]int{}
				}
				w.Counts[name][slot], told = [2]int{n.Ready, n.NotReady}, true
			}
			if !told {
				w.Empty = append(w.Empty, slot)
			}
		}
		slices.Sort(w.Empty)
		if text, err := json.Marshal(w); err == nil && len(text) <= maxText {
			return string(text)
		}
	}
	return "{}"
}

// Tell is what a replica has to tell: what it can count now, and of other slots what it has said before, until their
// holders have counted them. said is what it has told last, since that need not have come back yet.
func Tell(replica string, own Own, told Told, said string) string {
	all := Own{}
	before, ok := read(said)
	if !ok {
		before = told.by[replica]
	}
	for slot, counts := range before {
		if slot < len(told.holders) && !told.countedByAnother(slot, replica) {
			all[slot] = counts
		}
	}
	maps.Copy(all, own)
	return write(all)
}

// countedByAnother says that the slot's holder is another than the replica, and has counted it.
func (t Told) countedByAnother(slot int, replica string) bool {
	holder := t.holders[slot]
	_, counted := t.by[holder][slot]
	return counted && holder != replica
}

// Sum adds up all slots, each by what counts for it: our own count, else the word of its holder, else, while its holder has
// not counted it, the worst that anybody has said of it: then one of them is the last who did. Zones are added up by
// themselves and into their cluster. complete says that there is something for every slot.
func Sum(own Own, told Told) (total map[Scope]Count, complete bool) {
	total, complete = map[Scope]Count{}, len(told.holders) > 0
	for slot, holder := range told.holders {
		counts, ok := own[slot]
		if !ok {
			counts, ok = told.by[holder][slot]
		}
		if !ok {
			counts, ok = told.worst(slot)
		}
		complete = complete && ok
		for scope, n := range counts {
			total[scope.cluster()] = total[scope.cluster()].Add(n)
			if scope.Zone != "" {
				total[scope] = total[scope].Add(n)
			}
		}
	}
	return total, complete
}

// worst returns, scope by scope, the word on a slot with the most machines that are not Ready, and of those the one with the
// fewest that are.
func (t Told) worst(slot int) (worst Counts, ok bool) {
	worst = Counts{}
	for _, own := range t.by {
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
