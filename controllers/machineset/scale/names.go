package scale

import (
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// nameAlphabet has no vowels and nothing that looks like something else, so that no words and no doubts arise.
	nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength = 5
	// suffixes is how many suffixes there are: 27⁵.
	suffixes = 27 * 27 * 27 * 27 * 27
	// maxName is the longest name that is a DNS label, which a host's name has to be.
	maxName = 63
)

// Name derives the name of a set's machine from the set's UID and the machine's ordinal: the set's name, cut to fit, and
// five characters. Within a set two ordinals below 14 million never have the same name: the ordinal goes through
// a·x + b mod 27⁵, which is one to one because a is no multiple of 3.
func Name(set string, uid types.UID, ordinal int64) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // never fails
	seed := h.Sum64()
	a := (seed%suffixes)/3*3 + 1
	b := (seed / suffixes) % suffixes
	x := (a*(uint64(ordinal)%suffixes) + b) % suffixes
	suffix := make([]byte, suffixLength)
	for i := range suffix {
		suffix[i] = nameAlphabet[x%uint64(len(nameAlphabet))]
		x /= uint64(len(nameAlphabet))
	}
	if limit := maxName - suffixLength - 1; len(set) > limit {
		set = strings.TrimRight(set[:limit], "-.")
	}
	return set + "-" + string(suffix)
}

// Ordinal returns the ordinal that the machine's name was derived from; ok is false for a machine that no set of ours
// has made.
func Ordinal(m metav1.Object) (ordinal int64, ok bool) {
	o, err := strconv.ParseInt(m.GetAnnotations()[v1alpha1.AnnotationOrdinal], 10, 64)
	return o, err == nil && o >= 0
}

// OrdinalIn returns the ordinal of a machine that this set has made. One that has come from another set keeps the ordinal
// that it had there, which means nothing here.
func OrdinalIn(set *v1alpha1.MachineSet, m metav1.Object) (ordinal int64, ok bool) {
	ordinal, ok = Ordinal(m)
	return ordinal, ok && m.GetName() == Name(set.Name, set.UID, ordinal)
}

func highestOrdinal(machines []*v1alpha1.Machine) int64 {
	highest := int64(-1)
	for _, m := range machines {
		if o, ok := Ordinal(m); ok {
			highest = max(highest, o)
		}
	}
	return highest
}
