package machine

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// mostPlaces is how many places of a MachineDeployment have series: a client that may change its
// template can name any number of them.
const mostPlaces = 16

// place is where machines of a MachineDeployment are created.
type place struct{ instanceType, zone string }

// figures are those of the last machine of a MachineDeployment in a place. Fields that are not
// known are 0.
type figures struct {
	create, initialize, join, delete time.Duration
	failedJoins                      int
}

// deploymentFigures are those of a MachineDeployment.
type deploymentFigures struct {
	drain  time.Duration
	places map[place]figures
}

// lastMachines has the durations of the last machine of each MachineDeployment, and counts those
// that did not join, as Machine Controller Manager reports them. What is known of a
// MachineDeployment is dropped when this process does not see it any more.
type lastMachines struct {
	view *objectcache.View

	mu    sync.Mutex
	known map[types.UID]*deploymentFigures
}

// newLastMachines returns one without figures. It is called before the view receives objects.
func newLastMachines(view *objectcache.View) *lastMachines {
	l := &lastMachines{view: view, known: map[types.UID]*deploymentFigures{}}
	view.Deployments.OnChange(func(before, after *v1alpha1.MachineDeployment) {
		if after == nil {
			l.forget(before.UID)
		}
	})
	return l
}

func (l *lastMachines) forget(deployment types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, deployment)
}

// note records what a write of a machine has ended. A machine without a MachineDeployment in the
// view has no figures.
func (l *lastMachines) note(m *v1alpha1.Machine, class *v1alpha1.MachineClass, t timing, ended []lifecycle.Took, cause lifecycle.Cause) {
	root, _ := ownerref.RootOf(l.view, m)
	deployment, ok := root.(*v1alpha1.MachineDeployment)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.known[deployment.UID]
	if !ok {
		known = &deploymentFigures{places: map[place]figures{}}
		l.known[deployment.UID] = known
	}
	at := placeOf(m, class)
	here, isKnown := known.places[at]
	if !isKnown && len(known.places) == mostPlaces {
		clear(known.places)
	}
	for _, took := range ended {
		switch took.Step { //nolint:exhaustive // Machine Controller Manager does not measure the others
		case lifecycle.StepCreate:
			here.create, here.initialize = took.Duration, t.initializeCall
		case lifecycle.StepRun:
			here.join = took.Duration
		case lifecycle.StepDrain:
			known.drain = took.Duration
		case lifecycle.StepDelete:
			here.delete = took.Duration
		}
	}
	if cause == lifecycle.CauseJoin {
		here.failedJoins++
	}
	known.places[at] = here
}

func placeOf(m *v1alpha1.Machine, class *v1alpha1.MachineClass) (at place) {
	if class != nil && class.NodeTemplate != nil {
		at.instanceType = class.NodeTemplate.InstanceType
	}
	at.zone = m.Spec.NodeTemplateSpec.Labels[corev1.LabelTopologyZone]
	return at
}

// of returns the figures of a MachineDeployment.
func (l *lastMachines) of(deployment types.UID) (drain time.Duration, places map[place]figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.known[deployment]
	if !ok {
		return 0, nil
	}
	return known.drain, maps.Clone(known.places)
}

// metrics returns the metrics of MachineDeployments. What is not known has no series.
func (l *lastMachines) metrics() []telemetry.Gauge[*v1alpha1.MachineDeployment] {
	type deployments = []*v1alpha1.MachineDeployment
	byPlace := func(of func(figures) float64) func(deployments, telemetry.Measure) {
		return func(all deployments, report telemetry.Measure) {
			for _, d := range all {
				_, places := l.of(d.UID)
				for at, here := range places {
					if value := of(here); value > 0 {
						report(value, d.Namespace, d.Name, at.instanceType, at.zone)
					}
				}
			}
		}
	}
	labels := []string{"namespace", "machine_deployment", "instance_type", "zone"}
	seconds := func(name, help string, of func(figures) time.Duration) telemetry.Gauge[*v1alpha1.MachineDeployment] {
		return telemetry.OfGroups(name, help, byPlace(func(f figures) float64 { return of(f).Round(time.Second).Seconds() }), labels...)
	}
	return []telemetry.Gauge[*v1alpha1.MachineDeployment]{
		seconds("mcm_machine_create_duration_seconds", "From the creation of a MachineDeployment's last new machine until its VM was created.",
			func(f figures) time.Duration { return f.create }),
		seconds("mcm_machine_initialize_duration_seconds", "How long the driver took to set up the VM of a MachineDeployment's last new machine.",
			func(f figures) time.Duration { return f.initialize }),
		seconds("mcm_machine_join_duration_seconds", "From the creation of the machine of a MachineDeployment that joined last until it ran.",
			func(f figures) time.Duration { return f.join }),
		seconds("mcm_machine_delete_duration_seconds", "How long the deletion of a MachineDeployment's machine took that was deleted last.",
			func(f figures) time.Duration { return f.delete }),
		telemetry.OfGroups("mcm_machine_drain_duration_seconds", "How long the last drain of a Node of a MachineDeployment took.",
			func(all deployments, report telemetry.Measure) {
				for _, d := range all {
					if drain, _ := l.of(d.UID); drain > 0 {
						report(drain.Round(time.Second).Seconds(), d.Namespace, d.Name)
					}
				}
			}, labels[:2]...),
		telemetry.CountOfGroups("mcm_machine_num_failed_join", "Machines of a MachineDeployment that did not join within the creation timeout.",
			byPlace(func(f figures) float64 { return float64(f.failedJoins) }), labels...),
	}
}
