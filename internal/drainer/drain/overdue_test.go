package drain

import "fmt"

// checkOverdue looks at the volumes that pods leave behind which are deleted because their time has
// just been over.
func checkOverdue(f Facts, v Verdict) string {
	if v.Cause != CauseTimeout || f.Sight < Watched || !f.Now.Before(f.Order.deadline().Add(forceTime)) {
		return ""
	}
	users, left := map[string]int{}, map[string]bool{}
	for _, pod := range f.Pods {
		for _, volume := range volumesOf(f, pod) {
			users[volume.key]++
		}
	}
	for _, r := range v.Pods {
		for _, volume := range volumesOf(f, r.Pod) {
			if _, tried := f.Memory.Attempts[r.Pod.UID]; users[volume.key] == 1 && !tried && r.Pod.DeletionTimestamp == nil {
				left[volume.key] = true
			}
		}
	}
	if len(left) > f.FreeDetaches {
		return fmt.Sprintf("pods with %d volumes are deleted where %d may begin to move", len(left), f.FreeDetaches)
	}
	return ""
}
