package machinefacts

import (
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Revision returns the number of a MachineSet's revision; 0 if it has none that can be read.
func Revision(set *v1alpha1.MachineSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[v1alpha1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
