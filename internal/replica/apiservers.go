package replica

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apitime"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// checkedName is the name of the objects that checks of API servers read. None needs to exist: that there is none is an answer.
const checkedName = "machine-controller-fleet-check"

// checks are what checks of API servers need.
type checks struct {
	settings reach.Settings
	// namespace of the Machine that is read in the control cluster: one that this process may read.
	namespace string
}

func (o *Options) checks() checks {
	c := checks{settings: reach.Settings{Timeout: o.Safety.StatusCheckTimeout, Period: o.Safety.StatusCheckPeriod}, namespace: o.Namespace}
	if c.namespace == "" {
		c.namespace = o.Fleet.Namespace
	}
	return c
}

// drainConfirm is how long requests for a drain have to fail before a drain whose time is over is given up: twice as long as it takes to
// detect that the API server is away.
func (c checks) drainConfirm() time.Duration { return 2 * (c.settings.Timeout + 2*c.settings.Every()) }

// unlimited returns a config for the checks of a server, whose requests do not wait for others: a check that waits in this process would
// look like a server that does not answer.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// controlServer returns the API server of the control cluster. config has the Fence below it.
func controlServer(config *rest.Config, c checks, own clock.WithTicker) (*check.Server, error) {
	client, err := machineClient(unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("control cluster: %w", err)
	}
	return check.New(check.Config{Name: "control", Settings: c.settings, Clock: own, Read: func(ctx context.Context) error {
		_, err := client.MachineV1alpha1().Machines(c.namespace).Get(target.Once(ctx), checkedName, metav1.GetOptions{})
		return err //nolint:wrapcheck // the check decides on it
	}}), nil
}

// targetServer returns the API server of the target cluster. config has the Fence below it.
func targetServer(config *rest.Config, c checks, own clock.WithTicker) (*check.Server, error) {
	client, err := kubernetes.NewForConfig(protobuf(unlimited(config)))
	if err != nil {
		return nil, fmt.Errorf("target cluster: %w", err)
	}
	return check.New(check.Config{Name: "target", Settings: c.settings, Clock: own, Read: func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Get(target.Once(ctx), checkedName, metav1.GetOptions{})
		return err //nolint:wrapcheck // the check decides on it
	}}), nil
}

// servers returns the API servers that this process checks.
func (c *clients) servers() check.Servers {
	all := check.Servers{c.controlServer}
	if c.targetServer != nil {
		all = append(all, c.targetServer)
	}
	return all
}

// onServerChange gives machines and roots a pass when an API server that they depend on is away, and when it is back.
func (f *Replica) onServerChange(machines *machine.Controller, replacements *remediation.Controller) {
	changed := func(of *target.Cluster) func() {
		return func() {
			machines.ServerChanged(of)
			replacements.ServerChanged(of)
		}
	}
	f.controlServer.OnChange(changed(nil))
	if f.targetServer != nil {
		f.targetServer.OnChange(changed(f.cluster))
	}
}

// known returns what this process knows of an API server and its clock, in the time of the control cluster: decisions compare it with times on
// objects.
func (c *clients) known(of *check.Server, its *apitime.Clock) func() reach.Fact {
	return func() reach.Fact { return reach.Both(of.Fact().By(c.wall.At), c.jump(its)) }
}

// outages returns what this process knows of the API servers, and of times without a replica.
func (f *Replica) outages() target.Servers {
	return target.Servers{Control: f.known(f.controlServer, f.wall), Unserved: func() reach.Fact {
		if known := f.unserved.Load(); known != nil {
			return f.past(*known)
		}
		return reach.Fact{}
	}, UnservedSlot: func(slot string) reach.Fact {
		known, _ := f.unservedSlots.Load(slot)
		fact, _ := known.(reach.Fact) // none
		return f.past(fact)
	}}
}

// past returns a time without a replica, or none if that ends in the future, as after the clock was set back: it would keep machines from failing
// until then.
func (f *Replica) past(fact reach.Fact) reach.Fact {
	if fact.Back.After(f.wall.Now().Add(member.ShortestGap)) {
		return reach.Fact{}
	}
	return fact
}

// noteUnserved makes a time without a replica count as an outage: nothing that depends on it could make progress.
func (f *Replica) noteUnserved(gap member.Gap) {
	f.unserved.Store(&reach.Fact{From: gap.From, Back: gap.To})
}

// noteUnservedSlot makes a time in which a slot had no holder count as an outage for what is in it.
func (f *Replica) noteUnservedSlot(slot int, gap member.Gap) {
	f.unservedSlots.Store(strconv.Itoa(slot), reach.Fact{From: gap.From, Back: gap.To})
}
