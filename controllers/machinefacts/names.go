package machinefacts

import (
	"crypto/sha256"
	"encoding/binary"
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
	// lows and highs are how many values the last three and the first two characters of a suffix have, and suffixes how many all have.
	lows     = 27 * 27 * 27
	highs    = 27 * 27
	suffixes = lows * highs
	// maxName is the longest name that is a DNS label, which a host's name has to be.
	maxName = 63
)

// Name derives the name of a set's machine from the set's UID and the machine's ordinal: the set's name, cut to fit, and
// five characters. Within a set two ordinals below 14 million never have the same name. Who knows names of a set and not its UID
// cannot compute others: a tenant that knows the name of a later Node of another one could take it.
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

// permute maps the numbers below suffixes one to one to the same numbers, in an order that follows from the key: a Feistel
// network with a round for each word of the key.
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
