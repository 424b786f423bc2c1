package ready

import (
	"encoding/json"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Coming is how many machines a set has decided to make, by the intents that stand on it, that are not among those that are
// seen. They come even if the set is to be smaller by now, and then go again. Intents that cannot be read are none: the set makes
// no machines of those.
func Coming(set *v1alpha1.MachineSet, seen []*v1alpha1.Machine) (n int32) {
	var intents struct {
		Set    types.UID `json:"set"`
		Create []int64   `json:"create"`
	}
	err := json.Unmarshal([]byte(set.Annotations[v1alpha1.AnnotationIntents]), &intents)
	if err != nil || intents.Set != "" && intents.Set != set.UID {
		return 0
	}
	for _, ordinal := range intents.Create {
		text := strconv.FormatInt(ordinal, 10)
		if !slices.ContainsFunc(seen, func(m *v1alpha1.Machine) bool { return m.Annotations[v1alpha1.AnnotationOrdinal] == text }) {
			n++
		}
	}
	return n
}
