//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// stands waits until a pool has exactly these machines, all of them run, and nothing is left of what the autoscaler wrote:
// neither a name on the MachineDeployment nor a mark or a cordon on what remains.
func (s *space) stands(pool string, names ...string) {
	s.Helper()
	slices.Sort(names)
	s.eventually(fmt.Sprintf("%s has the machines %v", pool, names), func(ctx context.Context) error {
		machines, err1 := s.machines(ctx, pool)
		nodes, err2 := s.nodesOf(ctx, pool)
		d, err3 := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		var wrong complaints
		var found []string
		for _, m := range machines {
			found = append(found, m.Name)
			wrong.unless(m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning, "%s is %s", m.Name, m.Status.CurrentStatus.Phase)
			wrong.unless(m.Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered && m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] == "",
				"%s is marked: %v", m.Name, m.Annotations)
		}
		slices.Sort(found)
		wrong.unless(slices.Equal(found, names), "there are %v", found)
		for _, n := range nodes {
			wrong.unless(!n.Spec.Unschedulable, "Node %s is cordoned", n.Name)
		}
		named, are := d.Annotations[v1alpha1.AnnotationTriggerDeletion]
		wrong.unless(!are, "the MachineDeployment names %q", named)
		wrong.unless(progress(d) == progressDone, "Progressing is %s", progress(d))
		return wrong.err()
	})
}

// autoscalerShrinks scales a pool down, and counts the writes.
func (s *space) autoscalerShrinks() {
	const pool = "pool"
	s.deploy(pool, 5)
	s.running(pool, 5)
	s.reports(pool, 5)
	s.joined()
	names := s.machineNames(pool)
	a := s.scaler(3, pool)
	film, position := s.film(), s.auditEnd()
	first := []string{names[1], names[3]} // neither the oldest nor the newest ones
	a.deletes(pool, sized{Replicas: 3, Deleted: first, Writes: 1}, first...)
	s.proves("CA-10", func(s *space) {
		s.stands(pool, names[0], names[2], names[4])
		s.reports(pool, 3)
		s.turnover(film, pool, 0, first...)
		s.always(film, "the size is what the autoscaler wants", func(d *v1alpha1.MachineDeployment) bool { return d.Spec.Replicas == 3 })
		s.cordoned(film, first...)
	})
	s.workload()
	s.proves("CA-11", func(s *space) {
		a := s.scaler(3, pool)
		last := names[4]
		s.podOn(last, "stays", pause(), neverEnds)
		point := s.stopNext("DELETE", "machines/"+last)
		a.deletes(pool, sized{Replicas: 2, Deleted: []string{last}, Writes: 1}, last)
		point.stopped()
		film, named := s.film(), s.deployment(pool)
		a.deletes(pool, sized{Replicas: 2}, last) // it still runs, and is named
		s.namesAgain(named, time.Second)
		point.release()
		s.unnamed(pool)
		a.deletes(pool, sized{Replicas: 2, Skipped: map[string]string{last: "it is being deleted"}}, last)
		s.namesAgain(named, 2*time.Second)
		s.unnamed(pool)
		s.turnover(film, pool, 0)
		s.force(last)
		s.stands(pool, names[0], names[2])
		// A late list from a stale cache of the autoscaler, with invalid entries.
		late := time.Now().UTC().Format(time.RFC3339)
		s.patch("machinedeployments", pool, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s~%s,,unknown~%s,%s~never"}}}`,
			v1alpha1.AnnotationTriggerDeletion, last, late, late, names[0]))
		s.stands(pool, names[0], names[2])
		s.turnover(film, pool, 0, last)
		s.always(film, "the size is what the autoscaler wants", func(d *v1alpha1.MachineDeployment) bool { return d.Spec.Replicas == 2 })
	})
	// What the fleet writes of a MachineDeployment may cost the autoscaler a conflict, and 5 s.
	s.proves("writes", func(s *space) {
		a := s.scaler(3, pool)
		main, status, puts := s.deploymentWrites(position)
		const named = 2 + 1 + 1 + 1 // machines in the four lists
		s.Logf("for four lists, two of them stale: %d writes of the fleet, %d of the status, %d of the autoscaler", main, status, len(puts))
		if main > named || status > 12 || len(puts) != 2 { // a machine leaves the list once for each time that it comes, with others or alone
			s.Errorf("for four lists the fleet has written the MachineDeployment %d times, and its status %d times, the autoscaler %d times; want at most %d, 12, and 2", main, status, len(puts), named)
		}
		position = s.auditEnd()
		a.resize("increase-size", pool, 1, 3)
		s.running(pool, 3)
		s.reports(pool, 3)
		main, status, puts = s.deploymentWrites(position)
		s.Logf("for one more machine: %d writes of the fleet, %d of the status, %d of the autoscaler", main, status, len(puts))
		if main != 0 || status > 4 || len(puts) != 1 {
			s.Errorf("for one more machine the fleet has written the MachineDeployment %d times, and its status %d times, the autoscaler %d times; want 0, at most 4, and 1", main, status, len(puts))
		}
		position = s.auditEnd()
		wait(s.T, 3*time.Second)
		if main, status, _ := s.deploymentWrites(position); main+status > 0 {
			s.Errorf("while nothing changes the fleet has written the MachineDeployment %d times", main+status)
		}
	})
	// The fleet writes the status again as soon as it is missing, so its write has to be late. A pod keeps the machine until the status
	// of the pool that shrinks was seen.
	s.proves("CA-19", func(s *space) {
		a, film := s.scaler(3, pool), s.film()
		names := s.machineNames(pool)
		s.podOn(names[2], "stays-a-while", pause(), neverEnds)
		point := s.stopNext("PATCH", "machinedeployments/"+pool+"/status")
		s.withoutStatus(pool)
		point.stopped()
		a.deletes(pool, sized{Replicas: 2, Deleted: names[2:], Writes: 1}, names[2])
		if reason := progress(s.deployment(pool)); reason != "" {
			s.Errorf("Progressing is %s while the autoscaler decides, want none", reason)
		}
		point.release()
		s.eventually("the status shows the pool that shrinks", func(context.Context) error {
			versions, _ := shown[*v1alpha1.MachineDeployment](s, film)
			if !slices.ContainsFunc(versions, func(d *v1alpha1.MachineDeployment) bool {
				return d.Name == pool && d.Spec.Replicas == 2 && d.Status.Replicas == 3
			}) {
				return fmt.Errorf("none of %d versions does", len(versions))
			}
			return nil
		})
		s.ends("stays-a-while")
		s.stands(pool, names[:2]...)
		s.deploy("new", 1)
		s.running("new", 1)
		s.reports("new", 1)
		s.always(film, "nothing fails, and a pool that shrinks is not rolled", func(d *v1alpha1.MachineDeployment) bool {
			p := progress(d)
			return p == progressDone || p == "" || d.Name == "new" && strings.HasPrefix(p, "True/")
		})
	})
}

// withoutStatus removes the status of a MachineDeployment, as after a restore from a backup.
func (s *space) withoutStatus(pool string) {
	s.Helper()
	d := s.deployment(pool)
	d.Status = v1alpha1.MachineDeploymentStatus{}
	_, err := s.api().MachineDeployments(s.name).UpdateStatus(s.Context(), d, metav1.UpdateOptions{})
	s.must(err)
}

// namesAgain writes the size of a MachineDeployment and the names of machines to delete again, with a later time.
func (s *space) namesAgain(d *v1alpha1.MachineDeployment, later time.Duration) {
	s.Helper()
	list := d.Annotations[v1alpha1.AnnotationTriggerDeletion]
	at, err := time.Parse(time.RFC3339, d.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler])
	s.must(err)
	if list == "" {
		s.Errorf("MachineDeployment %s names no machine", d.Name)
	}
	s.patch("machinedeployments", d.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}},"spec":{"replicas":%d}}`,
		v1alpha1.AnnotationTriggerDeletion, list, v1alpha1.AnnotationLastReplicaChangeByScaler, at.Add(later).Format(time.RFC3339), d.Spec.Replicas))
}

// unnamed waits until a MachineDeployment names no machine any more.
func (s *space) unnamed(pool string) {
	s.Helper()
	s.eventually("no machine is named", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err == nil && d.Annotations[v1alpha1.AnnotationTriggerDeletion] != "" {
			err = fmt.Errorf("its annotations are %v", d.Annotations)
		}
		return err
	})
}

// cordoned checks that a film shows the Nodes of these machines cordoned before they are gone, and no others of the namespace.
func (s *space) cordoned(film *recording, machines ...string) {
	s.Helper()
	nodes, _ := shown[*corev1.Node](s, film)
	seen := map[string]bool{}
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			seen[n.Name] = true
		}
	}
	for _, name := range machines {
		if !seen[name] {
			s.Errorf("Node %s was not cordoned", name)
		}
	}
	for _, m := range s.machineNames("") {
		if seen[m] {
			s.Errorf("Node %s was cordoned", m)
		}
	}
}

// olderAutoscalersShrink scales down with autoscalers of the first two generations.
func (s *space) olderAutoscalersShrink() {
	for _, pool := range []string{"names", "priorities", "equal"} {
		s.deploy(pool, 4)
	}
	s.running("", 12)
	s.joined()
	for _, pool := range []string{"names", "priorities", "equal"} {
		s.reports(pool, 4)
	}
	film := s.film()
	s.proves("CA-14", func(s *space) {
		const pool = "names"
		names := s.machineNames(pool)
		first := []string{names[0], names[2]}
		s.scaler(2, pool).deletes(pool, sized{Replicas: 2, Deleted: first, Writes: 1}, first...)
		s.stands(pool, names[1], names[3])
		s.turnover(film, pool, 0, first...)
		upgraded := false
		s.always(film, "names are given times, and nothing else", func(d *v1alpha1.MachineDeployment) bool {
			value, are := d.Annotations[v1alpha1.AnnotationTriggerDeletion]
			if d.Name != pool || !are || value == strings.Join(first, ",") {
				return true
			}
			entries := strings.Split(value, ",")
			for _, entry := range entries {
				name, at, _ := strings.Cut(entry, "~")
				if _, err := time.Parse(time.RFC3339, at); err != nil || !slices.Contains(first, name) {
					return false
				}
			}
			upgraded = upgraded || len(entries) == 2
			return true
		})
		if !upgraded {
			s.Error("the names never got times")
		}
	})
	s.proves("CA-15", func(s *space) {
		const pool = "priorities"
		names := s.machineNames(pool)
		last := names[3]
		s.scaler(1, pool).deletes(pool, sized{Replicas: 3, Deleted: []string{last}, Writes: 1}, last)
		s.turnover(film, pool, 0, last)
		s.stands(pool, names[:3]...)
		// The two writes of the first generation are far from each other.
		first := names[0]
		s.annotate(first, v1alpha1.AnnotationPriority, v1alpha1.PriorityTriggered)
		wait(s.T, 2*time.Second)
		if _, gone := s.comings(film, pool); !slices.Equal(gone, []string{last}) {
			s.Errorf("%v are gone before the replicas were lowered", gone)
		}
		s.scale(pool, 2)
		s.stands(pool, names[1], names[2])
		s.turnover(film, pool, 0, first, last)
	})
	s.proves("CA-13", func(s *space) {
		const pool = "equal"
		names := s.machineNames(pool)
		at := time.Now().UTC().Format(time.RFC3339)
		// As when another machine has failed and was deleted meanwhile, and a scale-up follows the scale-down.
		s.patch("machinedeployments", pool, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s~%s",%q:%q}}}`,
			v1alpha1.AnnotationTriggerDeletion, names[1], at, v1alpha1.AnnotationLastReplicaChangeByScaler, at))
		s.turnover(film, pool, 1, names[1])
		came, _ := s.comings(film, pool)
		s.stands(pool, append(came, names[0], names[2], names[3])...)
	})
}

// autoscalerLeavesAlone: machines that the cluster-autoscaler does not remove.
func (s *space) autoscalerLeavesAlone() {
	const pool = "pool"
	s.deploy(pool, 4, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second}}
	})
	s.running(pool, 4)
	s.reports(pool, 4)
	vms := s.joined()
	s.workload()
	film := s.film()
	s.proves("CA-21", func(s *space) {
		a := s.scaler(3, pool)
		names := s.machineNames(pool)
		going, failed := names[0], names[1]
		s.podOn(going, "stays", pause(), neverEnds)
		s.remove("machines", going)
		s.turnover(film, pool, 1)
		a.deletes(pool, sized{Replicas: 4, Skipped: map[string]string{going: "it is being deleted"}}, going)
		// It is named nevertheless, as by an autoscaler that has not observed the failure.
		at := time.Now().UTC().Format(time.RFC3339)
		s.patch("machinedeployments", pool, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s~%s",%q:%q}}}`,
			v1alpha1.AnnotationTriggerDeletion, going, at, v1alpha1.AnnotationLastReplicaChangeByScaler, at))
		s.unnamed(pool)
		s.force(going)
		s.turnover(film, pool, 1, going)
		s.running(pool, 4)
		s.podOn(failed, "stays-too", pause(), neverEnds)
		s.annotate(failed, v1alpha1.AnnotationPreserve, v1alpha1.PreserveWhenFailed)
		s.must(s.lab.Cloud.Act(s.Context(), vms[failed], cloudapi.ActionLoseReady))
		s.isPreserved(failed, true)
		a.deletes(pool, sized{Replicas: 4, Skipped: map[string]string{failed: "it has failed"}}, failed)
		s.turnover(film, pool, 1, going)
		s.annotate(failed, v1alpha1.AnnotationPreserve, v1alpha1.PreserveFalse)
		s.turnover(film, pool, 2, going)
		a.deletes(pool, sized{Replicas: 4, Skipped: map[string]string{failed: "it is being deleted"}}, failed)
		s.force(failed)
		s.turnover(film, pool, 2, going, failed)
		came, _ := s.comings(film, pool)
		s.stands(pool, append(came, names[2], names[3])...)
		s.always(film, "the size does not change", func(d *v1alpha1.MachineDeployment) bool { return d.Spec.Replicas == 4 })
	})
	s.proves("CA-22", func(s *space) {
		a := s.scaler(3, pool)
		name := s.machineNames(pool)[0]
		s.annotate(name, v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow)
		s.isPreserved(name, true)
		a.deletes(pool, sized{Replicas: 4, Skipped: map[string]string{name: "it is preserved"}}, name)
		end := time.Now().Add(3 * time.Second).Truncate(time.Second)
		_, err := s.api().Machines(s.name).Patch(s.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"currentStatus":{"preserveExpiryTime":%q}}}`, end.UTC().Format(time.RFC3339)), metav1.PatchOptions{}, "status")
		s.must(err)
		s.isPreserved(name, false)
		machines, moments := shown[*v1alpha1.Machine](s, film)
		was := false
		for i, m := range machines {
			is := m.Status.CurrentStatus.PreserveExpiryTime != nil
			if late := moments[i].seen.Sub(end); m.Name == name && was && !is && late < 0 {
				s.Errorf("the field was removed %s before the end of the preservation", -late)
			}
			if m.Name == name {
				was = is
			}
		}
		a.deletes(pool, sized{Replicas: 3, Deleted: []string{name}, Writes: 1}, name)
		s.running(pool, 3)
		if slices.Contains(s.machineNames(pool), name) {
			s.Errorf("machine %s is still there", name)
		}
	})
}

// force deletes a machine without waiting for its pods.
func (s *space) force(machine string) {
	s.Helper()
	s.patch("machines", machine, fmt.Sprintf(`{"metadata":{"labels":{%q:"True"}}}`, v1alpha1.LabelForceDeletion))
}

// isPreserved waits until a machine and its Node show to the autoscaler that it is preserved, or that it is not.
func (s *space) isPreserved(name string, want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("preserved: %t", want), func(ctx context.Context) error {
		m, err1 := s.api().Machines(s.name).Get(ctx, name, metav1.GetOptions{})
		n, err2 := s.lab.Target.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		_, kept := n.Annotations[v1alpha1.AnnotationScaleDownDisabled]
		if is := m.Status.CurrentStatus.PreserveExpiryTime != nil; is != want || kept != want {
			return fmt.Errorf("it is %t, and its Node kept is %t", is, kept)
		}
		return nil
	})
}
