package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	fleetcrds "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1/crds"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/crds"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/manifests"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	cloudsimName = "cloudsim"
	targetPrefix = "target-"

	// Between two probes is a tenth of the time waited, within these bounds: where a dozen labs start
	// at a time that takes a minute, and probes at a fixed interval would be much of the work.
	shortestInterval = 50 * time.Millisecond
	longestInterval  = time.Second
	// probeTimeout bounds a question about the health of a process, and bootProbeTimeout one during
	// its boot: on a busy machine all answers may take seconds.
	probeTimeout     = 2 * time.Second
	bootProbeTimeout = 30 * time.Second

	// restartsBeforeReady is how often a process with a restart policy may end before it is ready: a
	// replica on a busy machine may lose its session, and ends, as it does in a cluster.
	restartsBeforeReady = 2
)

var errEnded = errors.New("process ended before it was ready")

// culprit is the failure of a boot that is caused by one process.
type culprit struct {
	name string
	log  string
	err  error
}

func (c *culprit) Error() string {
	text := fmt.Sprintf("%s: %v", c.name, c.err)
	if last := tail(c.log, 15); last != "" {
		text += "\nThe end of " + c.log + ":\n" + last
	}
	return text
}

func (c *culprit) Unwrap() error { return c.err }

// boot starts everything and waits until it is ready.
func (l *Launcher) boot(ctx context.Context) error {
	if err := l.createClusters(ctx); err != nil {
		return err
	}
	l.say("certificates and kubeconfigs are created")
	group, groupCtx := errgroup.WithContext(ctx)
	for cluster := range map[*controlplane.Cluster]bool{l.control: true, l.target: true} { // may be one
		group.Go(func() error { return l.bootCluster(groupCtx, cluster) })
	}
	if err := group.Wait(); err != nil {
		return err
	}

	if err := l.install(ctx, l.control, l.target); err != nil {
		return err
	}
	l.say("access rules are installed")
	if err := l.bootMembers(ctx); err != nil {
		return err
	}
	if err := l.installMembers(ctx); err != nil {
		return err
	}
	if err := l.bootCloudsim(ctx); err != nil {
		return err
	}
	if err := l.bootClouds(ctx); err != nil {
		return err
	}
	if l.options.Tracing {
		if err := l.bootJaeger(ctx); err != nil {
			return err
		}
	}
	if err := l.bootDrivers(ctx); err != nil {
		return err
	}
	if err := l.bootNodes(ctx); err != nil {
		return err
	}
	return l.bootFleet(ctx)
}

// clusterList has the control cluster, and the target clusters that are others and have components.
func (l *Launcher) clusterList() []*controlplane.Cluster {
	all := []*controlplane.Cluster{l.control}
	if l.target != l.control {
		all = append(all, l.target)
	}
	for _, m := range l.members {
		if m.real != nil {
			all = append(all, m.real)
		}
	}
	return all
}

// createClusters creates the secrets of the control and the target cluster, and starts etcd. There
// may be one cluster that is both.
func (l *Launcher) createClusters(ctx context.Context) error {
	ports, err := l.ports.take(ctx, 8)
	if err != nil {
		return err
	}
	programs := controlplane.Programs{Hyperkube: l.options.binary(hyperkubeBinary), Dir: l.options.Dir}
	now := l.clock.Now()
	if l.etcd, err = controlplane.NewEtcd(programs, ports[0], ports[1], now); err != nil {
		return err
	}
	if err := l.launch(l.etcd.Spec()); err != nil {
		return err
	}
	controlPorts := controlplane.Ports{APIServer: ports[2], ControllerManager: ports[3], Scheduler: ports[4]}
	if l.control, err = controlplane.NewCluster("control", "", programs, controlPorts, l.etcd, now); err != nil {
		return err
	}
	l.target = l.control
	if l.options.twoClusters() {
		targetPorts := controlplane.Ports{APIServer: ports[5], ControllerManager: ports[6], Scheduler: ports[7]}
		if l.target, err = controlplane.NewCluster("target", targetPrefix, programs, targetPorts, l.etcd, now); err != nil {
			return err
		}
	}
	return errors.Join(l.writeKubeconfigs(), l.makeMembers(ctx, programs))
}

func (l *Launcher) writeKubeconfigs() error {
	admin := controlplane.Subject{User: "admin", Groups: []string{controlplane.MastersGroup}}
	write := func(name string, cluster *controlplane.Cluster, user controlplane.Subject) error {
		kubeconfig, err := cluster.Kubeconfig(user)
		if err != nil {
			return err
		}
		return l.options.folder().writeFile(name, kubeconfig)
	}
	return errors.Join(
		write(adminKubeconfig, l.control, admin),
		write(targetKubeconfig, l.target, admin),
		write(cloudsimKubeconfig, l.target, controlplane.Subject{User: cloudsimName}),
	)
}

// bootCluster starts a cluster's components, and waits until they are ready.
func (l *Launcher) bootCluster(ctx context.Context, cluster *controlplane.Cluster) error {
	specs := cluster.Specs()
	apiServer, others := specs[0], specs[1:]
	if err := l.bootComponent(ctx, cluster, controlplane.APIServer, apiServer); err != nil {
		return err
	}
	if err := l.define(ctx, cluster); err != nil {
		return err
	}
	// The others would exit if they started before the API server.
	group, groupCtx := errgroup.WithContext(ctx)
	for i, component := range cluster.Components()[1:] {
		group.Go(func() error { return l.bootComponent(groupCtx, cluster, component, others[i]) })
	}
	return group.Wait()
}

func (l *Launcher) bootComponent(ctx context.Context, cluster *controlplane.Cluster, component string, spec supervise.Spec) error {
	client, path, err := cluster.Probe(component)
	if err != nil {
		return err
	}
	url := ""
	if component == controlplane.APIServer {
		url = cluster.Server()
	}
	return l.bootProcess(ctx, spec, url, func(ctx context.Context) error {
		_, err := client.Get(ctx, path)
		return err
	})
}

// install applies what the clusters need, and waits until it is in effect.
func (l *Launcher) install(ctx context.Context, control, target *controlplane.Cluster) error {
	controlClient, err := control.Admin()
	if err != nil {
		return err
	}
	defer controlClient.Close()
	targetClient, err := target.Admin()
	if err != nil {
		return err
	}
	defer targetClient.Close()

	// Created by the API server, and by the controller manager; without them rules cannot be applied,
	// and pods not be created.
	for _, path := range []string{
		"/api/v1/namespaces/kube-system", "/api/v1/namespaces/kube-node-lease", "/api/v1/namespaces/default/serviceaccounts/default",
	} {
		for _, client := range []*controlplane.Client{controlClient, targetClient} {
			if err := l.await(ctx, path, nil, func(ctx context.Context) error {
				_, err := client.Get(ctx, path)
				return err
			}); err != nil {
				return err
			}
		}
	}
	if err := targetClient.Apply(ctx, manifests.Target()); err != nil {
		return fmt.Errorf("access rules of the target cluster: %w", err)
	}
	if err := controlClient.Apply(ctx, manifests.Control()); err != nil {
		return fmt.Errorf("access rules of the control cluster: %w", err)
	}
	if l.options.Replicas == 0 {
		l.withoutFleet = true
		return nil // The Helm chart may install its own.
	}
	return l.installFleet(ctx, controlClient, targetClient)
}

// installFleet applies what replicas of the lab need.
func (l *Launcher) installFleet(ctx context.Context, control, target *controlplane.Client) error {
	access := manifests.FleetLandscape()
	if !l.options.landscape() {
		access = manifests.FleetControl()
		if err := target.Apply(ctx, manifests.FleetTarget()); err != nil {
			return fmt.Errorf("access of the fleet to the target cluster: %w", err)
		}
	}
	if err := control.Apply(ctx, access); err != nil {
		return fmt.Errorf("access of the fleet to the control cluster: %w", err)
	}
	return nil
}

// define installs the custom resource definitions of a cluster, before its controller manager
// starts: the garbage collector of that looks for new ones every 30 s, and until then it does not
// know their objects.
func (l *Launcher) define(ctx context.Context, cluster *controlplane.Cluster) error {
	if l.options.Replicas == 0 {
		return nil // The Helm chart may install its own.
	}
	client, err := cluster.Admin()
	if err != nil {
		return err
	}
	defer client.Close()
	if l.options.MachineConfiguration && (cluster != l.control || cluster == l.target && !l.options.landscape()) {
		if err := l.installCRDs(ctx, client, fleetcrds.FS); err != nil {
			return err
		}
	}
	if cluster != l.control {
		return nil
	}
	return l.installCRDs(ctx, client, crds.FS)
}

// installCRDs installs the custom resource definitions in a folder.
func (l *Launcher) installCRDs(ctx context.Context, client *controlplane.Client, definitions fs.FS) error {
	paths, err := fs.Glob(definitions, "*.yaml")
	if err != nil {
		return fmt.Errorf("looking for custom resource definitions: %w", err)
	}
	for _, path := range paths {
		manifest, err := fs.ReadFile(definitions, path)
		if err != nil {
			return fmt.Errorf("reading custom resource definition: %w", err)
		}
		if err := client.Apply(ctx, manifest); err != nil {
			return fmt.Errorf("installing %s: %w", path, err)
		}
	}
	return l.await(ctx, "custom resource definitions", nil, func(ctx context.Context) error { return established(ctx, client) })
}

// established returns an error for a custom resource definition that is not served yet.
func established(ctx context.Context, client *controlplane.Client) error {
	body, err := client.Get(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("the list of custom resource definitions: %w", err)
	}
	for _, crd := range list.Items {
		served := false
		for _, condition := range crd.Status.Conditions {
			served = served || condition.Type == "Established" && condition.Status == "True"
		}
		if !served {
			return fmt.Errorf("%s is not established", crd.Metadata.Name)
		}
	}
	return nil
}

func (l *Launcher) bootCloudsim(ctx context.Context) error {
	ports, err := l.ports.take(ctx, 1)
	if err != nil {
		return err
	}
	address := loopback(ports[0])
	folder := l.options.folder()
	args := []string{
		"--listen=" + address,
		"--state-dir=" + folder.path("cloudsim"),
		"--call-log=" + folder.path(cloudsimCalls),
	}
	if l.options.landscape() {
		args = append(args, "--clusters="+folder.path(cloudsimFolder))
	} else {
		args = append(args, "--kubeconfig="+folder.path(cloudsimKubeconfig))
		if err := l.createImages(); err != nil {
			return err
		}
		command, err := l.kubeletCommand(ctx)
		if err != nil {
			return err
		}
		if command != "" {
			args = append(args, "--kubelet-command="+command)
		}
	}
	if l.options.MachineConfiguration {
		args = append(args, "--daemons")
	}
	url := "http://" + address
	spec := l.spec(cloudsimName, cloudsimBinary, append(args, strings.Fields(l.options.CloudsimFlags)...))
	return l.bootProcess(ctx, spec, url, httpProbe(url+"/healthz"))
}

func (l *Launcher) spec(name, binary string, args []string) supervise.Spec {
	return supervise.Spec{Name: name, Path: l.options.binary(binary), Args: args, Log: l.options.folder().Log(name)}
}

// bootProcess starts a process and waits until it answers.
func (l *Launcher) bootProcess(ctx context.Context, spec supervise.Spec, url string, p probe) error {
	if err := l.launch(spec); err != nil {
		return err
	}
	l.endpoint(spec.Name, url, p)
	return l.ready(ctx, spec)
}

// ready waits until a process answers that has been started.
func (l *Launcher) ready(ctx context.Context, spec supervise.Spec) error {
	l.mu.Lock()
	p := l.probes[spec.Name]
	l.mu.Unlock()
	first, err := l.supervisor.Get(spec.Name)
	if err != nil {
		return err
	}
	err = l.await(ctx, spec.Name, func() bool {
		now, err := l.supervisor.Get(spec.Name)
		return err == nil && now.State == supervise.Exited && (!now.Returns || now.Starts-first.Starts >= restartsBeforeReady)
	}, p)
	if errors.Is(err, errEnded) {
		if last, getErr := l.supervisor.Get(spec.Name); getErr == nil && last.Exit != "" {
			err = fmt.Errorf("%w: %s", err, last.Exit)
		}
	}
	if err != nil {
		return &culprit{name: spec.Name, log: spec.Log, err: err}
	}
	l.say(spec.Name + " is ready")
	return nil
}

func (l *Launcher) launch(spec supervise.Spec) error {
	if err := l.supervisor.Launch(spec); err != nil {
		return &culprit{name: spec.Name, log: spec.Log, err: err}
	}
	return nil
}

// await probes until p has no error. It fails when ctx ends or the process has; ended is nil where
// it does not depend on one.
func (l *Launcher) await(ctx context.Context, what string, ended func() bool, p probe) error {
	began := l.clock.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, bootProbeTimeout)
		err := p(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ended != nil && ended() {
			return errEnded
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last error: %w)", what, ctx.Err(), err)
		case <-l.clock.After(min(max(l.clock.Since(began)/10, shortestInterval), longestInterval)):
		}
	}
}

func httpProbe(url string) probe {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err // It names method and URL.
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}

// tail is the last lines of a file; "" if it cannot be read.
func tail(path string, lines int) string {
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
