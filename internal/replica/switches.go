package replica

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	leasepolicy "github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
)

// newSwitches wires the switches of namespaces; nil if the options have none. A replica that does
// not see the Deployments is unfit.
func newSwitches(d *deps, s *slots) (*namespaceswitch.Switches, error) {
	if !d.o.DeploymentSwitch {
		return nil, nil //nolint:nilnil // nil has all namespaces switched on
	}
	byNamespace, err := assignment.NewSpread(s.spread.Count(), assignment.ByNamespace)
	if err != nil {
		return nil, err
	}
	slotOf := func(namespace string) int { return byNamespace.Of(namespace, "") }
	return namespaceswitch.New(namespaceswitch.Config{
		Deployments: s.control("Deployments", objectcache.From(d.control.AppsV1().Deployments(d.o.Namespace))),
		Pods:        objectcache.From(d.control.CoreV1().Pods(d.o.Namespace)),
		Client:      d.control.CoreV1(), SlotOf: slotOf, Holds: d.session.fence.Holds,
		Gate:     fence.NewGate(d.session.fence, func(namespace string) (int, bool) { return slotOf(namespace), true }),
		Selected: d.isSelected, Service: d.service, Clock: d.wall, Metrics: d.metrics, Tracer: d.tracer,
	})
}

// Reasons why a namespace that is switched on is not served, on the pods of its switch.
const (
	reasonBlind        = "ObjectsUnknown"
	reasonOtherManager = "OtherManager"
	reasonNotSelected  = "NotSelected"
)

// service returns how this replica serves a namespace whose slot it holds.
func (d *deps) service(namespace string) policy.Service {
	for _, what := range d.slots.Broken() {
		return policy.Service{Reason: reasonBlind, Message: "The replica that holds the namespace cannot serve it: " + what}
	}
	switch other, known := d.slots.namespaces.Other(namespace); {
	case !known:
		return policy.Service{Pending: true}
	case !d.isSelected(namespace):
		if d.selection(namespace) != leasepolicy.NotSelected || !d.slots.namespaces.Unheld(namespace) {
			return policy.Service{Pending: true}
		}
		return policy.Service{Reason: reasonNotSelected, Message: "No fleet has held the namespace for 15 s; label it for one"}
	case other != "":
		return policy.Service{
			Reason: reasonOtherManager,
			Message: fmt.Sprintf("%s holds the Leases %s and %s of the namespace; stop it and wait 15 s",
				other, v1alpha1.LeaseManager, v1alpha1.LeaseMachineController),
		}
	case d.byNamespace == nil || len(d.view.Machines.In(namespace)) == 0: // it needs no target cluster
		return policy.Service{}
	}
	_, err := d.byNamespace.For(namespace)
	if missing, is := errors.AsType[*target.UnavailableError](err); is {
		return policy.Service{
			Pending: missing.Pending, Reason: v1alpha1.ReasonTargetUnavailable, Message: bounded.Text(missing.Error(), bounded.Message),
		}
	}
	return policy.Service{}
}

// linkSwitches connects the switches of namespaces with what they depend on, and the connections to
// target clusters with the switches.
func (d *deps) linkSwitches() {
	if d.slots.switches == nil {
		return
	}
	d.slots.namespaces.OnChange(d.slots.switches.Changed)
	if d.byNamespace != nil {
		d.byNamespace.OnChange(d.slots.switches.Changed)
		d.slots.switches.OnChange(d.targetUsers.changed)
	}
}

// serves reports whether the fleet holds a namespace, and it is switched on.
func (d *deps) serves(namespace string) bool {
	return d.slots.switches.IsOn(namespace) && d.slots.namespaces.Holds(namespace)
}

// leaderGate returns a Gate that admits namespaces that are switched on while this session leads.
func (d *deps) leaderGate() runner.Gate[string] {
	return namespaceswitch.Guard(d.slots.switches, fence.NewLeaderGate[string](d.session.fence), func(namespace string) string {
		return namespace
	})
}

// reportUnowned returns the function by which the leader reports slots without a holder.
func (d *deps) reportUnowned(reporter *shardsession.Reporter) func(ctx context.Context, slots []int) error {
	return func(ctx context.Context, slots []int) error {
		return errors.Join(reporter.ReportUnowned(ctx, slots), d.slots.switches.ReportUnowned(ctx, slots))
	}
}

var errSwitchedOff = errors.New("the namespace is switched off")

// tryIfOn returns a function that tries an account by a class in a namespace that is switched on.
func (d *deps) tryIfOn(
	try func(ctx context.Context, class types.NamespacedName) (answer, err error),
) func(context.Context, types.NamespacedName) (answer, err error) {
	return func(ctx context.Context, class types.NamespacedName) (answer, err error) {
		if !d.slots.switches.IsOn(class.Namespace) {
			return nil, errSwitchedOff
		}
		return try(ctx, class)
	}
}
