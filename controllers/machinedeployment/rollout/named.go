package rollout

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// named is an entry of the list in which the cluster-autoscaler names the machines to delete.
type named struct {
	machine string
	// at is when it was named, and since the same as text; an older autoscaler does not write it, and
	// both are zero.
	at    time.Time
	since string
}

// readNamed reads the list. Invalid entries are left out, and so is a machine that is named once
// more.
func readNamed(d *v1alpha1.MachineDeployment) (list []named) {
	for entry := range strings.SplitSeq(d.Annotations[v1alpha1.AnnotationTriggerDeletion], ",") {
		machine, since, timed := strings.Cut(strings.TrimSpace(entry), "~")
		n := named{machine: machine, since: since}
		if timed {
			var err error
			if n.at, err = time.Parse(time.RFC3339, n.since); err != nil {
				continue
			}
		}
		if n.machine != "" && !slices.ContainsFunc(list, func(o named) bool { return o.machine == n.machine }) {
			list = append(list, n)
		}
	}
	return list
}

// writeNamed writes the list to a deployment; an empty one removes the annotation.
func writeNamed(d *v1alpha1.MachineDeployment, list []named) {
	if len(list) == 0 {
		delete(d.Annotations, v1alpha1.AnnotationTriggerDeletion)
		return
	}
	entries := make([]string, len(list))
	for i, n := range list {
		entries[i] = n.machine + "~" + n.since
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, strings.Join(entries, ","))
}

// upgradeNamed adds the time of the last change of the replicas to entries without a time. Where
// the autoscaler does not write that one, either, both are now.
func upgradeNamed(d *v1alpha1.MachineDeployment, now time.Time) {
	list := readNamed(d)
	if !slices.ContainsFunc(list, func(n named) bool { return n.since == "" }) {
		return
	}
	at, since := changedByScaler(d)
	if since == "" {
		at, since = now, inWords(now)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, since)
	}
	for i, n := range list {
		if n.since == "" {
			list[i].at, list[i].since = at, since
		}
	}
	writeNamed(d, list)
}

// changedByScaler returns when the autoscaler last changed the replicas: on a deployment as the
// autoscaler has written it, on a set as the set got it with the size that belongs to it. It is
// zero and "" when it was not written.
func changedByScaler(obj metav1.Object) (at time.Time, since string) {
	return machinefacts.TimeIn(obj, v1alpha1.AnnotationLastReplicaChangeByScaler)
}

func inWords(at time.Time) string { return at.UTC().Format(time.RFC3339) }
