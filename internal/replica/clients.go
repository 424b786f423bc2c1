package replica

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// clients are the connections to both clusters. All of them have the Fence below them. Those to the
// target cluster are nil when there is none.
type clients struct {
	leases   *rest.Config // for a client of the control cluster with its own connections
	control  kubeclient.Interface
	machines machineclient.MachineV1alpha1Interface
	metadata metadata.Interface
	target   kubeclient.Interface

	targetMetadata metadata.Interface
	targetConfigs  fleetclient.FleetV1alpha1Interface

	// controlLists and targetLists record the health of the lists of the kinds of objects that slots
	// have, in both clusters: these a replica has to list to serve them. Other lists decide nothing
	// about a replica: one Secret that cannot be decrypted fails them for all.
	controlLists, targetLists *apianswers.ListHealth

	// controlServer and targetServer are the API servers as this process reaches them; targetServer is
	// nil without a target cluster.
	controlServer, targetServer *check.Server

	// wall and targetWall are the times of both clusters; targetWall is nil without a target cluster.
	// The one of the control cluster is that of everything that is written to objects, or compared
	// with times on them.
	wall, targetWall *apianswers.Clock
}

// Seconds after which a connection without data is probed, and after which it is closed without an
// answer. client-go's defaults, 30 and 15, would leave the watches of a replica silent for 45 s
// when its network drops packets.
const (
	pingAfter, pingTimeout = 10, 5
)

// noticeDeadConnections sets that for all clients, by the environment as client-go requires. Values
// that are already set are kept.
func noticeDeadConnections() error {
	for name, seconds := range map[string]int{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter, "HTTP2_PING_TIMEOUT_SECONDS": pingTimeout} {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(seconds)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// connect returns the clients. wall is the time of the control cluster, which its answers set.
// Errors: invalid configurations.
func connect(around Environment, fence *fence.Fence, wall *apianswers.Clock, checks checks) (clients, error) {
	control, err := guarded(around.Control, fence, "control", wall)
	if err != nil {
		return clients{}, fmt.Errorf("control cluster: %w", err)
	}
	leases := control
	if around.Leases != nil {
		if leases, err = guarded(around.Leases, fence, "control", wall); err != nil {
			return clients{}, fmt.Errorf("control cluster: %w", err)
		}
	}
	c := clients{
		leases:       leases,
		wall:         wall,
		controlLists: apianswers.NewListHealth(around.Clock, "machinedeployments", "machinesets", "machines"),
		targetLists:  apianswers.NewListHealth(around.Clock, "nodes", "pods"),
	}
	if c.controlServer, err = controlServer(control, checks, around.Clock); err != nil {
		return clients{}, err
	}
	control = rest.CopyConfig(control)
	control.Wrap(c.controlLists.Wrap)
	control.Wrap(c.controlServer.Wrap)
	control.Wrap(decode.PageTransport)
	var errs [4]error
	c.control, errs[0] = kubeclient.New(protobuf(control))
	c.machines, errs[1] = machineClient(control)
	c.metadata, errs[2] = metadata.NewForConfig(control)
	errs[3] = c.connectTarget(around, fence, checks)
	return c, errors.Join(errs[:]...)
}

// guarded returns a configuration whose clients have the Fence below them, above it a check that an
// API server has written each answer, the clock that these answers set, and a span for each request
// of a pass that is traced. server names the cluster.
func guarded(config *rest.Config, fence *fence.Fence, server string, wall *apianswers.Clock) (*rest.Config, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	traced := apianswers.Check(config)
	traced.Wrap(wall.Wrap)
	traced.Wrap(telemetry.TraceRequests(server, url.Path))
	return fence.Guard(traced)
}

// machineClient returns a client of the machine API that can read other objects although one does
// not decode.
func machineClient(config *rest.Config) (machineclient.MachineV1alpha1Interface, error) {
	client, err := rest.RESTClientFor(decode.Config(config))
	if err != nil {
		return nil, err
	}
	return machineclient.New(client), nil
}

func (c *clients) connectTarget(around Environment, fence *fence.Fence, checks checks) error {
	if around.Target == nil {
		return nil
	}
	c.targetWall = apianswers.NewClock(around.Clock, "target")
	config, err := guarded(around.Target, fence, "target", c.targetWall)
	if err != nil {
		return fmt.Errorf("target cluster: %w", err)
	}
	if c.targetServer, err = targetServer(config, targetName, checks, around.Clock); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.Wrap(c.targetLists.Wrap)
	config.Wrap(c.targetServer.Wrap)
	config.Wrap(decode.PageTransport)
	client, err := kubeclient.New(protobuf(target.SendOnce(config)))
	if err != nil {
		return fmt.Errorf("target cluster: %w", err)
	}
	c.target = client
	if c.targetMetadata, err = metadata.NewForConfig(config); err != nil {
		return fmt.Errorf("target cluster: %w", err)
	}
	c.targetConfigs, err = fleetclient.NewForConfig(config)
	return err
}

// protobuf is the smaller encoding, for the kinds that are built into Kubernetes.
func protobuf(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}
