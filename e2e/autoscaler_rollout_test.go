//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// autoscalerDuringRollout starts a rollout that makes no progress, then one that does, and resizes the pool meanwhile.
func (s *space) autoscalerDuringRollout() {
	const pool, zone = "pool", "sim-3g"
	s.deploy(pool, 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})
	s.running(pool, 3)
	s.reports(pool, 3)
	s.joined()
	names := s.machineNames(pool)
	users := names[2] // a user keeps its Node
	s.patchNode(users, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationScaleDownDisabled))

	end, whole := s.fault(zone, cloudapi.FaultInternal), s.film()
	s.rollIt("second")
	s.proves("CA-16", func(s *space) {
		a := s.scaler(3, pool)
		s.eventually("the rollout has begun", func(ctx context.Context) error {
			d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
			if err == nil && (progress(d) == progressDone || progress(d) == "") {
				err = fmt.Errorf("Progressing is %q", progress(d))
			}
			return err
		})
		film := s.film()
		s.scaler(2, pool).refuses(refusedRolling, "delete-nodes", pool, names[0])
		a.refuses(refusedRolling, "decrease-target-size", pool, "1")
		a.resize("increase-size", pool, 1, 4)
		s.turnover(film, pool, 1)
	})
	s.proves("CA-20", func(s *space) {
		a := s.scaler(3, pool)
		s.kept(names, users)
		a.deletes(pool, sized{Replicas: 4, Skipped: map[string]string{names[0]: "its Node is not to be scaled down"}}, names[0])
		end()
		s.eventually("old and new Nodes are kept", func(ctx context.Context) error {
			annotated, err := s.rolloutNodes(ctx)
			if err != nil {
				return err
			}
			var old, fresh int
			for name, how := range annotated {
				switch {
				case !strings.HasPrefix(how, "kept"): // or it has another client's annotation
				case slices.Contains(names, name):
					old++
				default:
					fresh++
				}
			}
			if old == 0 || fresh == 0 {
				return fmt.Errorf("%d old ones and %d new ones: %v", old, fresh, annotated)
			}
			return nil
		})
		s.rolled("second", 4)
		s.withoutRolloutNodes()
		s.shielded(whole, "second", users)
	})
	s.proves("CA-20/gone back on", func(s *space) {
		names, film := s.machineNames(pool), s.film()
		users := names[0]
		s.patchNode(users, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationScaleDownDisabled))
		end := s.fault(zone, cloudapi.FaultInternal)
		s.rollIt("third")
		s.kept(names, users)
		end()
		s.rollIt("second")
		s.rolled("second", 4)
		s.eventually("only the user keeps a Node", func(ctx context.Context) error {
			nodes, err := s.nodesOf(ctx, pool)
			if err != nil {
				return err
			}
			var wrong complaints
			for _, n := range nodes {
				want := ""
				if n.Name == users {
					want = "true"
				}
				got, byUs := n.Annotations[v1alpha1.AnnotationScaleDownDisabled], n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs]
				wrong.unless(got == want && byUs == "", "%s is kept %q, by the fleet %q", n.Name, got, byUs)
			}
			return wrong.err()
		})
		if _, gone := s.comings(film, pool); slices.Contains(gone, users) {
			s.Errorf("machine %s was replaced", users)
		}
	})
}

// kept waits until the fleet keeps the Nodes of these machines, except that which a user keeps.
func (s *space) kept(machines []string, users string) {
	s.Helper()
	s.eventually("the Nodes are kept", func(ctx context.Context) error {
		var wrong complaints
		for _, name := range machines {
			n, err := s.lab.Target.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			byUs := "true"
			if name == users {
				byUs = ""
			}
			got := n.Annotations[v1alpha1.AnnotationScaleDownDisabled] + "," + n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs]
			wrong.unless(got == "true,"+byUs, "%s is kept %q, want true,%s", name, got, byUs)
		}
		return wrong.err()
	})
}

// autoscalerDuringRecreate replaces all machines at once.
func (s *space) autoscalerDuringRecreate() {
	s.keepsWhatIsReplaced("CA-20/recreate", func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.Type = v1alpha1.RecreateMachineDeploymentStrategyType
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})
}

// autoscalerDuringUpdate updates machines in place.
func (s *space) autoscalerDuringUpdate() {
	s.keepsWhatIsReplaced("CA-20/in place", inPlace(0, 1, v1alpha1.OrchestrationTypeAuto))
}

// keepsWhatIsReplaced rolls a pool in some way, and checks what the autoscaler sees meanwhile.
func (s *space) keepsWhatIsReplaced(cases string, strategy func(*v1alpha1.MachineDeployment)) {
	const pool = "pool"
	s.deploy(pool, 2, strategy)
	s.running(pool, 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	s.workload()
	for _, name := range s.machineNames(pool) { // no machine leaves within the second for which its status may be late
		s.podOn(name, name, pause(), map[string]string{cloudapi.AnnotationPodTermination: "3s"})
	}
	film := s.film()
	s.proves(cases, func(s *space) {
		s.rollIt("second")
		s.rolled("second", 2)
		s.withoutRolloutNodes()
		s.shielded(film, "second", "")
	})
}

// shielded checks that a film of a whole rollout of pool shows no state in which the autoscaler could remove a machine.
// users is a Node that a user keeps.
func (s *space) shielded(film *recording, template, users string) {
	s.Helper()
	var r *shield
	s.eventually("the rollout is over", func(context.Context) error {
		moments, err := film.play()
		r = &shield{template: template, users: users, old: map[string]bool{}, fresh: map[string]bool{}, kept: map[string]bool{}}
		for _, m := range moments {
			r.see(m)
		}
		if err == nil && !r.over {
			err = fmt.Errorf("it has begun: %t; old machines: %v", r.begun, r.old)
		}
		return err
	})
	s.must(r.wrong.err())
}

// shield is what keeps the autoscaler from the machines of pool during a rollout: the condition Progressing from the start of the
// rollout until it is over, and annotations on the Nodes, of old machines before they leave, and of new ones before it is over.
type shield struct {
	template, users string
	begun, over     bool
	// old and fresh are the machines that are there, by their template. One that is updated in place goes from one to the other.
	old, fresh map[string]bool
	// kept are the Nodes that there are or were, and whether the autoscaler is kept from them, or was for a time.
	kept  map[string]bool
	wrong complaints
}

func (r *shield) see(m moment) {
	switch o := m.object.(type) {
	case *v1alpha1.MachineDeployment:
		r.seeProgress(progress(o))
	case *v1alpha1.Machine:
		r.seeMachine(o, m.gone)
	case *corev1.Node:
		if r.old[o.Name] || r.fresh[o.Name] {
			r.seeNode(o)
		}
	}
}

func (r *shield) seeProgress(reason string) {
	switch done := reason == progressDone || reason == ""; {
	case r.over, !r.begun && done:
	case !done:
		r.begun = true
	case reason == "" || len(r.old) > 0:
		r.wrong.unless(false, "Progressing is %q while there are the old machines %v", reason, r.old)
	default:
		r.over = true
		for name := range r.fresh {
			r.wrong.unless(r.kept[name], "the new Node %s was never kept", name)
		}
	}
}

func (r *shield) seeMachine(m *v1alpha1.Machine, gone bool) {
	stays := !gone && m.Annotations["template"] != r.template
	if kept, is := r.kept[m.Name]; is && gone && r.old[m.Name] { // the autoscaler does not choose machines that are being deleted
		r.wrong.unless(kept, "machine %s is gone, and its Node was never kept", m.Name)
	}
	if r.old[m.Name] && !stays {
		r.wrong.unless(r.begun, "the old machine %s is gone before Progressing reports the rollout", m.Name)
	}
	delete(r.old, m.Name)
	delete(r.fresh, m.Name)
	switch {
	case stays:
		r.old[m.Name] = true
	case !gone:
		r.fresh[m.Name] = true
	}
}

func (r *shield) seeNode(n *corev1.Node) {
	byUs := "true"
	if n.Name == r.users {
		byUs = ""
	}
	kept := n.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" && n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] == byUs
	r.wrong.unless(kept || !r.kept[n.Name] || len(r.old) == 0, "Node %s is kept no longer, and there are the old machines %v", n.Name, r.old)
	if r.old[n.Name] && n.Labels[v1alpha1.LabelSelectedForUpdate] == "true" {
		r.wrong.unless(r.kept[n.Name], "Node %s is selected for its update, and was not kept", n.Name)
	}
	r.kept[n.Name] = r.kept[n.Name] || kept
}

// autoscalerResizesWhatIsPaused resizes a pool without a rollout, then a paused one.
func (s *space) autoscalerResizesWhatIsPaused() {
	const pool = "pool"
	s.deploy(pool, 4)
	s.running(pool, 4)
	s.reports(pool, 4)
	s.joined()
	s.proves("CA-17", func(s *space) {
		a := s.scaler(3, pool)
		names, film := s.machineNames(pool), s.film()
		last := names[len(names)-1]
		a.deletes(pool, sized{Replicas: 3, Deleted: []string{last}, Writes: 1}, last)
		s.turnover(film, pool, 0, last)
		a.resize("increase-size", pool, 1, 4)
		s.running(pool, 4)
		s.always(film, "it is only resized", func(d *v1alpha1.MachineDeployment) bool { return progress(d) == progressDone })
	})
	s.proves("CA-18", func(s *space) {
		a := s.scaler(3, pool)
		s.patch("machinedeployments", pool, `{"spec":{"paused":true}}`)
		s.progressing(corev1.ConditionUnknown, v1alpha1.ReasonDeploymentPaused)
		names, film := s.machineNames(pool), s.film()
		last := names[len(names)-1]
		a.deletes(pool, sized{Replicas: 3, Deleted: []string{last}, Writes: 1}, last)
		s.turnover(film, pool, 0, last)
		s.patch("machinedeployments", pool, `{"spec":{"paused":false}}`)
		s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	})
}

// autoscalerResizes resizes a pool with a deadline that cannot grow.
func (s *space) autoscalerResizes() {
	const pool = "pool"
	s.deploy(pool, 2, func(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = new(int32(2)) })
	s.running(pool, 2)
	s.reports(pool, 2)
	s.joined()
	s.proves("CA-17/cannot grow", func(s *space) {
		a, film := s.scaler(3, pool), s.film()
		end := s.fault("sim-3h", cloudapi.FaultInternal)
		a.resize("increase-size", pool, 1, 3)
		s.counted(pool, 3)
		wait(s.T, 4*time.Second) // twice its deadline
		end()
		s.running(pool, 3)
		s.reports(pool, 3)
		s.always(film, "it is only resized", func(d *v1alpha1.MachineDeployment) bool { return progress(d) == progressDone })
	})
}
