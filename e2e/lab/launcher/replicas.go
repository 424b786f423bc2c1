package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/manifests"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	fleetPrefix = "fleet-"
	fleetGroup  = "machine-controller-fleet"
	// doubleSuffix is the suffix of the name of a replica's second process.
	doubleSuffix = "-double"
	// gracePeriod is how long a pod may take to end.
	gracePeriod = 30 * time.Second
)

// Pod is a pod of the fleet's StatefulSet, as its kubelet knows it. UID and folder stay when its
// process starts again.
type Pod struct {
	// Name is that of the process. It is the replica's, unless the pod is a double.
	Name    string `json:"name"`
	Replica string `json:"replica"`
	UID     string `json:"uid"`
	// Dir is the pod's own volume.
	Dir string `json:"dir"`
	// URL is the address of its process.
	URL string `json:"url"`

	port, driverPort int
}

// errNoReplica: the name is not of a replica of the fleet.
var errNoReplica = fmt.Errorf("no replica of the fleet: %w", supervise.ErrUnknown)

const maxReplicas = 100

func replicaName(ordinal int) string { return fleetPrefix + strconv.Itoa(ordinal) }

// bootFleet starts all replicas, and waits until all are ready: a single one never becomes ready.
func (l *Launcher) bootFleet(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range l.options.Replicas {
		spec, err := l.startReplica(ctx, replicaName(i))
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error { return l.ready(groupCtx, spec) })
	}
	return group.Wait()
}

// startReplica makes a pod for a replica, and starts its process.
func (l *Launcher) startReplica(ctx context.Context, name string) (supervise.Spec, error) {
	return l.startPod(ctx, Pod{Name: name, Replica: name, UID: uuid.NewString()})
}

// startPod starts the processes of a pod that has name, replica and UID. Missing fields are set.
func (l *Launcher) startPod(ctx context.Context, pod Pod) (supervise.Spec, error) {
	if pod.Dir == "" {
		pod.Dir = l.options.folder().path("pods/" + pod.Replica + "_" + pod.UID)
	}
	if err := os.MkdirAll(pod.Dir, 0o700); err != nil {
		return supervise.Spec{}, fmt.Errorf("creating the folder of pod %s: %w", pod.Name, err)
	}
	if pod.port == 0 {
		ports, err := l.ports.take(ctx, 2+len(links))
		if err != nil {
			return supervise.Spec{}, err
		}
		pod.port, pod.driverPort = ports[0], ports[1]
		pod.URL = "http://" + loopback(pod.port)
		if err := l.openLinks(pod, ports[2:]); err != nil {
			return supervise.Spec{}, err
		}
	}
	if err := l.createSockets(); err != nil {
		return supervise.Spec{}, err
	}
	spec := l.podSpec(pod)
	l.mu.Lock()
	l.pods[pod.Name] = pod
	l.mu.Unlock()
	// The replica connects to its driver when that listens.
	if err := l.launch(l.driverSpec(pod)); err != nil {
		return spec, err
	}
	l.endpoint(driverOf(pod), "http://"+loopback(pod.driverPort), dialProbe("unix", l.options.socketOf(pod.Name)))
	if err := l.launch(spec); err != nil {
		return spec, err
	}
	l.endpoint(pod.Name, pod.URL, httpProbe(pod.URL+"/readyz"))
	return spec, nil
}

func (l *Launcher) podSpec(pod Pod) supervise.Spec {
	folder := l.options.folder()
	args := []string{
		"--control-kubeconfig=" + folder.path(kubeconfigOf(pod, controlLink)),
		"--namespace=",
		"--address=127.0.0.1", "--port=" + strconv.Itoa(pod.port),
		"--replica-name=" + pod.Replica, "--fleet-name=fleet", "--fleet-namespace=" + manifests.FleetNamespace,
		"--pod-uid=" + pod.UID, "--state-dir=" + pod.Dir,
		"--debug-hooks",
		"--driver-socket=" + strings.Join(slices.Concat([]string{simulatedProvider + "=" + l.options.socketOf(pod.Name)}, l.sockets), ","),
	}
	if l.options.landscape() {
		args = append(args, "--target=namespace", "--target-refused-networks=169.254.0.0/16") // not loopback, where all servers of the lab are
	} else {
		args = append(args, "--target-kubeconfig="+folder.path(kubeconfigOf(pod, targetLink)))
	}
	if l.options.MachineConfiguration {
		args = append(args, "--machine-configuration")
	}
	number := strings.TrimPrefix(pod.Replica, fleetPrefix)
	args = append(args, strings.Fields(strings.ReplaceAll(l.options.FleetFlags, "$(NUMBER)", number))...)
	spec := l.spec(pod.Name, fleetBinary, args)
	spec.StopTimeout = gracePeriod
	spec.Env = l.tracing
	if l.restarts(pod) {
		spec.Restart = supervise.Kubelet()
	}
	return spec
}

// restarts reports whether the processes of a pod are started again when they end by themselves.
func (l *Launcher) restarts(pod Pod) bool {
	return l.options.Restart == RestartAlways && pod.Name == pod.Replica
}

// Replace deletes a replica's pod, and starts the next one: with another UID and an empty folder.
func (l *Launcher) Replace(ctx context.Context, replica string) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	pod, err := l.replica(replica)
	if err != nil {
		return err
	}
	if err := l.endPod(ctx, pod); err != nil {
		return err
	}
	pod.UID, pod.Dir = uuid.NewString(), ""
	_, err = l.startPod(ctx, pod)
	return err
}

// Double starts a second process of a replica, with separate proxies: in the same pod, like a
// container runtime that has lost track of the first; or in a new pod, as happens when a pod is
// deleted by force. It is not started again when it ends.
func (l *Launcher) Double(ctx context.Context, replica string, newPod bool) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	pod, err := l.replica(replica)
	if err != nil {
		return err
	}
	pod.Name, pod.port = pod.Name+doubleSuffix, 0
	if newPod {
		pod.UID, pod.Dir = uuid.NewString(), ""
	}
	l.mu.Lock()
	old, known := l.pods[pod.Name]
	l.mu.Unlock()
	if known {
		if p, err := l.supervisor.Get(old.Name); err == nil && p.State != supervise.Exited {
			return fmt.Errorf("process %q: %w", old.Name, supervise.ErrRunning)
		}
		if err := l.removePod(ctx, old); err != nil {
			return err
		}
	}
	_, err = l.startPod(ctx, pod)
	return err
}

// Scale sets the number of replicas of the fleet: it starts missing ones, or stops surplus ones
// and waits until they have ended. Doubles of these are killed.
func (l *Launcher) Scale(ctx context.Context, replicas int) error {
	if replicas < 1 || replicas > maxReplicas {
		return fmt.Errorf("%w: replicas: expected 1 to %d, got %d", errBadRequest, maxReplicas, replicas)
	}
	l.scaling.Lock()
	defer l.scaling.Unlock()
	l.mu.Lock()
	now := l.options.Replicas
	l.mu.Unlock()
	if l.withoutFleet {
		return fmt.Errorf("%w: expected a lab that was started with replicas, got one without; its fleet is that of the Helm chart, if any",
			errBadRequest)
	}
	var group errgroup.Group
	for i := replicas; i < now; i++ {
		group.Go(func() error { return l.endReplica(ctx, replicaName(i)) })
	}
	err := group.Wait()
	if err != nil {
		return err
	}
	for ; now < replicas && err == nil; now++ {
		if _, err = l.startReplica(ctx, replicaName(now)); err != nil {
			replicas = now
			err = errors.Join(err, l.endReplica(ctx, replicaName(now)))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.options.Replicas, l.state.Options.Replicas = replicas, replicas
	l.save()
	return err
}

// replica finds the pod of a replica.
func (l *Launcher) replica(name string) (Pod, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pod, ok := l.pods[name]
	if !ok || pod.Name != pod.Replica {
		return Pod{}, fmt.Errorf("%q: %w", name, errNoReplica)
	}
	return pod, nil
}

func (l *Launcher) endReplica(ctx context.Context, name string) error {
	l.mu.Lock()
	pod, known := l.pods[name]
	double, doubled := l.pods[name+doubleSuffix]
	l.mu.Unlock()
	var errs [2]error
	if doubled {
		errs[0] = errors.Join(l.supervisor.Kill(double.Name), l.removePod(ctx, double))
	}
	if known {
		errs[1] = l.removePod(ctx, pod)
	}
	return errors.Join(errs[:]...)
}

// endPod ends the processes of a pod, with grace, and the pod with it. The driver ends last: a
// replica that leaves may call it.
func (l *Launcher) endPod(ctx context.Context, pod Pod) error {
	for _, process := range []string{pod.Name, driverOf(pod)} {
		if err := l.supervisor.Stop(ctx, process); err != nil {
			return err
		}
		if err := l.supervisor.Forget(process); err != nil {
			return err
		}
	}
	if l.sharesFolder(pod) {
		return nil
	}
	if err := os.RemoveAll(pod.Dir); err != nil {
		return fmt.Errorf("removing the folder of pod %s: %w", pod.Name, err)
	}
	return nil
}

// sharesFolder reports whether a pod has another process that is known.
func (l *Launcher) sharesFolder(pod Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.pods {
		if other.UID == pod.UID && other.Name != pod.Name {
			return true
		}
	}
	return false
}

// removePod removes a pod and all that was created for it.
func (l *Launcher) removePod(ctx context.Context, pod Pod) error {
	if err := l.endPod(ctx, pod); err != nil {
		return err
	}
	if err := l.closeLinks(pod); err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.pods, pod.Name)
	for _, process := range []string{pod.Name, driverOf(pod)} {
		delete(l.probes, process)
		delete(l.endpoints, process)
	}
	l.mu.Unlock()
	l.endpoint(pod.Name, "", nil)
	return nil
}
