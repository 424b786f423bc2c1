package decide

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// MaxSuspects is the maximum number of suspicions of a Record. Further ones are counted only.
const MaxSuspects = 500

// Key identifies a suspicion: a hash of the resource's kind and ID, of the UID in its tags, and of
// the reason of the suspicion. A resource that is suspected for another reason than before is a new
// suspicion.
type Key string

// keyBytes is how much of the hash a Key has: enough that no two resources of a cloud have the same
// one by chance.
const keyBytes = 10

// Suspect is a listed resource that may have to be deleted.
type Suspect struct {
	driver.Resource

	// Surplus is true for a VM whose Machine exists and has another VM. Otherwise no Machine has the
	// resource's UID.
	Surplus bool
}

// Key returns the key of the suspicion.
func (s Suspect) Key() Key {
	reason := "orphan"
	if s.Surplus {
		reason = "surplus"
	}
	return Key(hash(keyBytes, reason, string(s.Kind), s.ID, string(s.MachineUID)))
}

// hash returns a checksum of texts, none of which contains a zero byte.
func hash(size int, texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:size])
}

// ScopeKey identifies a scope in a Record. The scope itself, such as the name of an account, is not
// shown on a MachineClass.
func ScopeKey(provider, scope string) string { return hash(keyBytes, provider, scope) }

// Digest identifies a set of suspicions, in any order, for an approval.
func Digest(suspects []Suspect) string {
	keys := make([]string, len(suspects))
	for i, s := range suspects {
		keys[i] = string(s.Key())
	}
	slices.Sort(keys)
	return hash(digestBytes, keys...)
}

// digestBytes is the size of a Digest: short enough for a person to copy, and not to be met by
// chance.
const digestBytes = 6

// Listing collects the suspects of one scope while its pages are read. Its size is bounded by that
// of the namespace's Machines.
type Listing struct {
	namespace string
	machines  map[types.UID]bool
	known     map[Key]Entry
	vms       map[types.UID]driver.Resource // the first VM of each Machine
	doubles   map[types.UID][]driver.Resource
	suspects  map[Key]Suspect
	fresh     int // suspects that are not known
	more      int
}

// NewListing begins a listing. machines are the UIDs of all Machines of the namespace, and record
// has the suspicions so far.
func NewListing(namespace string, machines map[types.UID]bool, record Record) *Listing {
	return &Listing{
		namespace: namespace, machines: machines, known: record.Suspects,
		vms: map[types.UID]driver.Resource{}, doubles: map[types.UID][]driver.Resource{}, suspects: map[Key]Suspect{},
	}
}

// Add adds a page. Resources of other namespaces, which a driver must not list, are ignored.
func (l *Listing) Add(page []driver.Resource) {
	for _, r := range page {
		switch {
		case r.Namespace != l.namespace || r.MachineUID == "" || r.ID == "":
		case !l.machines[r.MachineUID]:
			l.suspect(Suspect{Resource: r})
		case r.Kind == driver.ResourceVM:
			l.addVM(r)
		}
	}
}

// addVM records a VM whose Machine exists.
func (l *Listing) addVM(vm driver.Resource) {
	first, has := l.vms[vm.MachineUID]
	switch {
	case !has:
		l.vms[vm.MachineUID] = vm
		return
	case first.ID == vm.ID: // it was listed twice
		return
	case len(l.doubles[vm.MachineUID]) == 0:
		if len(l.doubles) < MaxSuspects {
			l.doubles[vm.MachineUID] = []driver.Resource{first, vm}
		}
	case len(l.doubles[vm.MachineUID]) < driver.MaxOwned:
		l.doubles[vm.MachineUID] = append(l.doubles[vm.MachineUID], vm)
	}
}

// suspect adds a suspect, once. Those that were suspected before are always kept, so that many new
// ones do not displace them.
func (l *Listing) suspect(s Suspect) {
	key := s.Key()
	if _, repeated := l.suspects[key]; repeated {
		return
	}
	if _, known := l.known[key]; !known {
		if l.fresh == MaxSuspects {
			l.more++
			return
		}
		l.fresh++
	}
	l.suspects[key] = s
}

// Doubles returns one VM of each Machine that has several, in order. The caller reads these
// Machines, and calls Double.
func (l *Listing) Doubles() (vms []driver.Resource) {
	for _, several := range l.doubles {
		vms = append(vms, several[0])
	}
	slices.SortFunc(vms, func(a, b driver.Resource) int { return cmp.Compare(a.MachineUID, b.MachineUID) })
	return vms
}

// Double suspects those VMs with the UID of a Machine that are not the Machine's. providerID is
// that of the Machine by a live read. While the Machine names none of them, none is suspected: the
// one that it will name is not known.
func (l *Listing) Double(machine types.UID, providerID string) {
	several := l.doubles[machine]
	if !slices.ContainsFunc(several, func(vm driver.Resource) bool { return vm.ID == providerID }) {
		return
	}
	for _, vm := range several {
		if vm.ID != providerID {
			l.suspect(Suspect{Resource: vm, Surplus: true})
		}
	}
}

// Suspects returns the suspects of a complete list, at most MaxSuspects, in the order of their
// keys, and how many there are beyond these.
func (l *Listing) Suspects() (suspects []Suspect, more int) {
	rank := func(s Suspect) int {
		if _, known := l.known[s.Key()]; known {
			return 0
		}
		return 1
	}
	found := slices.SortedFunc(maps.Values(l.suspects), func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key(), b.Key()))
	})
	if excess := len(found) - MaxSuspects; excess > 0 {
		return found[:MaxSuspects], l.more + excess
	}
	return found, l.more
}
