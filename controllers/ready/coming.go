package ready

import (
	"encoding/json"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// MostIntents is how many machines a set has decided to make, and how many to delete, at the most before the first of them are seen
// done. An annotation with more was not written by a MachineSet controller, and its intents are none.
const MostIntents = 100

// intents are what this package reads of those that stand on a set.
type intents struct {
	Set    types.UID `json:"set"`
	Create []int64   `json:"create"`
	Delete []struct {
		UID types.UID `json:"uid"`
	} `json:"delete"`
}

// read reads the intents of a set. Intents that cannot be read are none: the set makes no machines of those.
func read(set *v1alpha1.MachineSet) (in intents) {
	err := json.Unmarshal([]byte(set.Annotations[v1alpha1.AnnotationIntents]), &in)
	if err != nil || in.Set != "" && in.Set != set.UID || max(len(in.Create), len(in.Delete)) > MostIntents {
		return intents{}
	}
	return in
}

// Coming is how many machines a set has decided to make, by the intents that stand on it, that are not among those that are
// seen. They come even if the set is to be smaller by now, and then go again.
func Coming[T metav1.Object](set *v1alpha1.MachineSet, seen []T) (n int32) {
	for _, ordinal := range read(set).Create {
		text := strconv.FormatInt(ordinal, 10)
		if !slices.ContainsFunc(seen, func(m T) bool { return m.GetAnnotations()[v1alpha1.AnnotationOrdinal] == text }) {
			n++
		}
	}
	return n
}

// Doomed are the machines that a set has decided to delete, by the intents that stand on it.
func Doomed(set *v1alpha1.MachineSet) map[types.UID]bool {
	doomed := map[types.UID]bool{}
	for _, d := range read(set).Delete {
		doomed[d.UID] = true
	}
	return doomed
}
