package replica

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
)

// checkedName is the name of the objects that checks of API servers read. None needs to exist: that
// there is none is an answer.
const checkedName = "machine-controller-fleet-check"

// checks contains what checks of API servers need.
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

// drainConfirm is how long requests for a drain have to fail before a drain whose time is over is
// given up: twice as long as it takes to detect that the API server is away.
func (c checks) drainConfirm() time.Duration { return 2 * (c.settings.Timeout + 2*c.settings.Every()) }

// unlimited returns a config for the checks of a server, whose requests do not wait for others: a
// check that waits in this process would look like a server that does not answer.
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
		_, err := client.Machines(c.namespace).Get(target.Once(ctx), checkedName, metav1.GetOptions{})
		return err //nolint:wrapcheck // the check decides on it
	}})
}

// targetServer returns the API server of a target cluster, by its name in logs. config has the
// Fence below it.
func targetServer(config *rest.Config, name string, c checks, own clock.WithTicker) (*check.Server, error) {
	client, err := corev1client.NewForConfig(protobuf(unlimited(config))) // one for all kinds takes 28 kB
	if err != nil {
		return nil, fmt.Errorf("target cluster: %w", err)
	}
	return check.New(check.Config{Name: name, Settings: c.settings, Clock: own, Read: func(ctx context.Context) error {
		_, err := client.Nodes().Get(target.Once(ctx), checkedName, metav1.GetOptions{})
		return err //nolint:wrapcheck // the check decides on it
	}})
}

// servers returns the API servers that this process checks.
func (c *clients) servers() check.Servers {
	all := check.Servers{c.controlServer}
	if c.targetServer != nil {
		all = append(all, c.targetServer)
	}
	return all
}

// known returns what this process knows of an API server and its clock, in the time of the control
// cluster: decisions compare it with times on objects.
func (c *clients) known(of *check.Server, its *apianswers.Clock) func() reach.Fact {
	return func() reach.Fact { return reach.Both(of.Fact().By(c.wall.At), c.jump(its)) }
}
