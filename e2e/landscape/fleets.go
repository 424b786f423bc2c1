package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// second is the name of the second fleet, and of its replicas; it has other slots than the first.
	second, secondSlots = "canary", 64
	// fleetLabel of a Namespace selects it for the second fleet, the others are those of the first.
	fleetLabel        = "fleet"
	ofFirst, ofSecond = fleetLabel + "!=" + second, fleetLabel + "=" + second
)

// measureFleets moves clusters to a second fleet, with other slots, and back, while machines of all
// clusters are created, deleted and replaced.
func (l *landscape) measureFleets(ctx context.Context) (err error) {
	stop, err := l.startSecond(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	moved, quietNames := l.names()[len(l.members)-l.o.moved:], l.names()[len(l.members)-l.o.moved/2:]
	vms, err := l.vms(ctx, quietNames)
	if err != nil {
		return err
	}
	loaded := slices.DeleteFunc(l.names(), func(name string) bool { return slices.Contains(quietNames, name) })
	load := l.startLoad(ctx, loaded, l.o.interval)
	fmt.Printf("\nOf %d clusters %d move, half of them with machines that are created, deleted and replaced:\n\n", len(l.members), len(moved))
	fmt.Print("| to | served by the other fleet after the label has changed | after the Leases were released |\n|---|---|---|\n")
	for _, to := range []struct{ name, fleet, label string }{
		{"fleets_there", second, `"` + second + `"`}, {"fleets_back", harness.Fleet, "null"},
	} {
		if err := l.moveTo(ctx, to.name, to.fleet, to.label, moved); err != nil {
			return err
		}
	}
	if err := load.stop(ctx); err != nil {
		return err
	}
	after, err := l.vms(ctx, quietNames)
	if err != nil {
		return err
	}
	touched := 0
	for id := range vms {
		if !after[id] {
			touched++
		}
	}
	twice, err := l.createdTwice(ctx)
	fmt.Printf("\nVMs touched in clusters that moved without other changes: %d of %d; new ones: %d; created twice: %d\n",
		touched, len(vms), len(after)-len(vms)+touched, twice)
	l.rows.add("fleets_vms_touched", float64(touched), "VMs")
	return errors.Join(err, l.checkCalls())
}

// checkCalls has the checker of fault tests read the calls of the cloud, of one fleet after the
// other: slots and epochs are those of a fleet.
func (l *landscape) checkCalls() error {
	calls, err := l.lab.Cloud.Calls()
	if err != nil {
		return err
	}
	faults := 0
	for _, fleet := range []string{harness.Fleet, second} {
		of := slices.DeleteFunc(slices.Clone(calls), func(c cloudapi.Call) bool {
			actor, known := check.ParseActor(c.Caller)
			return known && !isReplicaOf(actor.Replica, fleet)
		})
		report := check.Check(check.History{Calls: of})
		fmt.Printf("%s: %d calls of the cloud checked, faults: %q\n", fleet, report.Calls, report.Faults)
		faults += len(report.Faults)
	}
	l.rows.add("fleets_faults", float64(faults), "faults")
	return nil
}

// isReplicaOf reports whether a replica is one of the fleet whose first replica, or which, has the
// name.
func isReplicaOf(replica, fleet string) bool {
	return strings.HasPrefix(replica, strings.TrimSuffix(fleet, "0"))
}

// vms returns the VMs of clusters, by their ID.
func (l *landscape) vms(ctx context.Context, namespaces []string) (map[string]bool, error) {
	all, err := l.lab.Cloud.VMs(ctx, "")
	ids := map[string]bool{}
	for _, vm := range all {
		if slices.Contains(namespaces, vm.Tags[harness.TagCluster]) {
			ids[vm.ID] = true
		}
	}
	return ids, err
}

// moveTo changes the labels of Namespaces all at once, and measures until the fleet holds their
// Leases and watches the Nodes of their clusters.
func (l *landscape) moveTo(ctx context.Context, name, fleet, label string, moved []string) error {
	from, err := l.lab.AuditEnd()
	if err != nil {
		return err
	}
	changed := map[string]time.Time{}
	for _, namespace := range moved {
		changed[namespace] = time.Now()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, fleetLabel, label)
		if _, err := l.lab.Control.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label namespace %s: %w", namespace, err)
		}
	}
	return harness.EventuallyEvery(ctx, time.Second, "the other fleet serves all namespaces", func(ctx context.Context) error {
		requests, err := l.lab.Requests(from)
		if err != nil {
			return err
		}
		watches, err := l.nodeWatches(ctx)
		if err != nil {
			return err
		}
		released, begun := map[string]time.Time{}, map[string]time.Time{}
		for _, r := range requests {
			actor, known := check.ParseActor(r.UserAgent)
			_, is := changed[r.Namespace]
			if !known || !is || !r.IsWrite() || r.Code >= http.StatusMultipleChoices || r.Name != v1alpha1.LeaseMachineController {
				continue
			}
			if !isReplicaOf(actor.Replica, fleet) {
				released[r.Namespace] = r.At
				continue
			}
			if watched := watches[watchOf{r.Namespace, actor.Session}]; len(watched) > 0 {
				begun[r.Namespace] = r.At
				if at := watched.after(changed[r.Namespace]); at.After(r.At) { // else it had the target a moment ago
					begun[r.Namespace] = at
				}
			}
		}
		var labels, leases durations
		for namespace, at := range begun {
			labels = append(labels, at.Sub(changed[namespace]))
			leases = append(leases, at.Sub(released[namespace]))
		}
		if len(begun) < len(moved) {
			return fmt.Errorf("%d of %d are", len(begun), len(moved))
		}
		fmt.Printf("| %s | %s | %s |\n", fleet, labels, leases)
		l.rows.addDurations(name, labels)
		l.rows.addDurations(name+"_gap", leases)
		return nil
	})
}

// startSecond starts two replicas of a second fleet, with what the first replica of the lab has,
// and waits until they hold all slots. stop ends them.
func (l *landscape) startSecond(ctx context.Context) (stop func() error, err error) {
	pids, err := l.lab.Pids()
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pids[harness.Fleet]) + "/cmdline")
	if err != nil {
		return nil, fmt.Errorf("command of %s: %w", harness.Fleet, err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if err := l.admitSecond(ctx); err != nil {
		return nil, err
	}
	var running []*exec.Cmd
	stop = func() (err error) {
		for _, cmd := range running {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			err = errors.Join(err, cmd.Wait())
		}
		return err
	}
	for i := range 2 {
		cmd, err := l.startReplica(ctx, i, args)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		running = append(running, cmd)
	}
	err = harness.EventuallyEvery(ctx, time.Second, "the second fleet holds its slots", func(ctx context.Context) error {
		list, err := l.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).List(ctx, metav1.ListOptions{
			LabelSelector: v1alpha1.LabelFleet + "=" + second + "," + v1alpha1.LabelLease + "=" + v1alpha1.LeaseOfSlot,
		})
		if err != nil {
			return err
		}
		held := 0
		for _, lease := range list.Items {
			if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
				held++
			}
		}
		if held < secondSlots {
			return fmt.Errorf("%d of %d", held, secondSlots)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// admitSecond removes the policy by which replicas of the first fleet, whose user the second has,
// write the Leases of their own fleet only.
func (l *landscape) admitSecond(ctx context.Context) error {
	bindings := l.lab.Control.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	for _, binding := range list.Items {
		if strings.HasSuffix(binding.Spec.PolicyName, ".leases") {
			err = errors.Join(err, bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		}
	}
	return err
}

// startReplica starts a replica of the second fleet with the arguments of another one.
func (l *landscape) startReplica(ctx context.Context, i int, of []string) (*exec.Cmd, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	name := second + "-" + strconv.Itoa(i)
	dir := filepath.Join(filepath.Dir(l.lab.Dir), filepath.Base(l.lab.Dir)+"-"+name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", name, err)
	}
	own := map[string]string{
		"--port": port, "--replica-name": name, "--fleet-name": second, "--pod-uid": name, "--state-dir": dir,
		"--namespace-selector": ofSecond, "--slots": strconv.Itoa(secondSlots),
	}
	args := slices.DeleteFunc(slices.Clone(of[1:]), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return own[flag] != ""
	})
	for flag, value := range own {
		args = append(args, flag+"="+value)
	}
	log, err := os.Create(filepath.Join(l.lab.Dir, "logs", name+".log"))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, cmp.Or(l.o.second, of[0]), args...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = log, log, bytes.NewReader(nil)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, nil
}
