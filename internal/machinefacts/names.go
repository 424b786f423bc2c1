package machinefacts

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// nameAlphabet has no vowels and no characters that can be mistaken for others, so that suffixes
	// form no words.
	nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength = 5
	// lows and highs are the numbers of values of the last three and the first two characters of a
	// suffix; suffixes is their product.
	lows     = 27 * 27 * 27
	highs    = 27 * 27
	suffixes = lows * highs
	// maxName is the maximum length of a name that is a DNS label, as a host's name must be.
	maxName = 63
)

// Name derives the name of a set's machine from the set's UID and the machine's ordinal: the set's
// name, cut to fit, and five characters. Within a set two ordinals below 14 million never have the
// same name. Knowledge of names of a set without its UID does not suffice to compute others: a
// tenant that knows the name of a future Node of another tenant could claim it.
func Name(set string, uid types.UID, ordinal int64) string {
	x := permute(sha256.Sum256([]byte(uid)), uint64(ordinal)%suffixes)
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

// permute maps the numbers below suffixes one to one to the same numbers, in an order that follows
// from the key: a Feistel network with a round for each word of the key.
func permute(key [sha256.Size]byte, x uint64) uint64 {
	high, low := x/lows, x%lows
	for at := 0; at < len(key); at += 16 {
		high = (high + mix(binary.BigEndian.Uint64(key[at:]), low)) % highs
		low = (low + mix(binary.BigEndian.Uint64(key[at+8:]), high)) % lows
	}
	return high*lows + low
}

// mix scrambles the bits of key + x: the output function of SplitMix64.
func mix(key, x uint64) uint64 {
	x += key
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Ordinal returns the ordinal that the machine's name was derived from; ok is false for a machine
// that no MachineSet of the fleet has created.
func Ordinal(m metav1.Object) (ordinal int64, ok bool) {
	o, err := strconv.ParseInt(m.GetAnnotations()[v1alpha1.AnnotationOrdinal], 10, 64)
	return o, err == nil && o >= 0
}

// OrdinalIn returns the ordinal of a machine that this set has created. A machine that was
// transferred from another set keeps the ordinal of that set, which has no meaning here.
func OrdinalIn(set *v1alpha1.MachineSet, m metav1.Object) (ordinal int64, ok bool) {
	ordinal, ok = Ordinal(m)
	return ordinal, ok && m.GetName() == Name(set.Name, set.UID, ordinal)
}

// Revision returns the number of a MachineSet's revision; 0 if it has none that can be read.
func Revision(set *v1alpha1.MachineSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[v1alpha1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// TemplateLabels returns the labels that a machine has from a template: those that controllers
// write are their own. It may be changed.
func TemplateLabels(t *v1alpha1.MachineTemplateSpec) map[string]string {
	return withoutKeys(t.Labels, v1alpha1.IsMachineLabelOfControllers)
}

// TemplateAnnotations returns the annotations that a machine has from a template: those that
// controllers write, or delete a machine for, would take effect on each machine, and on the one
// that is created in its place. It may be changed.
func TemplateAnnotations(t *v1alpha1.MachineTemplateSpec) map[string]string {
	return withoutKeys(t.Annotations, v1alpha1.IsMachineAnnotationOfControllers)
}

func withoutKeys(all map[string]string, excluded func(key string) bool) map[string]string {
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(key, _ string) bool { return excluded(key) })
	return all
}
