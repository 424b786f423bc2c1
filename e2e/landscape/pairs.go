package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// pairs are processes of Machine Controller Manager, two for each of some namespaces.
type pairs struct {
	l          *landscape
	namespaces []string
	running    []*exec.Cmd
	from       harness.AuditPosition // before they were started
}

// measurePairs stops the fleet, and measures a pair of Machine Controller Manager's processes for
// each of some clusters, at rest and while these clusters roll.
func (l *landscape) measurePairs(ctx context.Context) (err error) {
	replicas, err := l.lab.Replicas(ctx)
	if err != nil {
		return err
	}
	p := &pairs{l: l, namespaces: l.names()[max(0, len(l.members)-l.o.pairs):]}
	for _, replica := range replicas {
		if err := l.lab.Do(ctx, replica, harness.Stop); err != nil {
			return err
		}
	}
	defer func() {
		err = errors.Join(err, p.stop(context.WithoutCancel(ctx)))
		for _, replica := range replicas {
			err = errors.Join(err, l.lab.Do(context.WithoutCancel(ctx), replica, harness.Start))
		}
	}()
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := pause(ctx, l.o.warm); err != nil {
		return err
	}
	rest, err := p.measure(ctx, func() error { return pause(ctx, l.o.rest) })
	if err != nil {
		return err
	}
	p.print("pairs_rest", "at rest", rest)
	var took durations
	roll, err := p.measure(ctx, func() (err error) {
		took, err = l.change(ctx, p.namespaces, 0, rolled)
		return err
	})
	if err != nil {
		return err
	}
	p.print("pairs_roll", "while they roll", roll)
	fmt.Println("\nrollout of a cluster by Machine Controller Manager:", took)
	l.rows.addDurations("pairs_roll_cluster", took)
	return nil
}

// start starts the pairs, and waits until they lead in their namespaces.
func (p *pairs) start(ctx context.Context) (err error) {
	if p.from, err = p.l.lab.AuditEnd(); err != nil {
		return err
	}
	if err := p.free(ctx); err != nil {
		return err
	}
	for _, namespace := range p.namespaces {
		for _, program := range [...]string{"machine-controller-manager", "machine-controller"} {
			if err := p.startOne(ctx, namespace, program); err != nil {
				return err
			}
		}
	}
	return harness.EventuallyEvery(ctx, time.Second, "Machine Controller Manager leads in its namespaces", func(ctx context.Context) error {
		for _, namespace := range p.namespaces {
			for _, name := range [...]string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
				lease, err := p.l.lab.Control.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if member.Holder(lease) == "" {
					return fmt.Errorf("no holder of Lease %s/%s", namespace, name)
				}
			}
		}
		return nil
	})
}

// free deletes the Leases of the namespaces, regardless of their holder.
func (p *pairs) free(ctx context.Context) error {
	for _, namespace := range p.namespaces {
		for _, name := range [...]string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
			err := p.l.lab.Control.CoordinationV1().Leases(namespace).Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("free namespace %s: %w", namespace, err)
			}
		}
	}
	return nil
}

func (p *pairs) startOne(ctx context.Context, namespace, program string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	dir := p.l.lab.Dir
	args := []string{
		"--control-kubeconfig=" + filepath.Join(dir, "admin.kubeconfig"),
		"--target-kubeconfig=" + filepath.Join(dir, "targets", namespace+".kubeconfig"), "--namespace=" + namespace, "--port=" + port, "--v=2",
	}
	if program == "machine-controller" {
		args = append(args, "--cloud="+p.l.lab.Endpoint("cloudsim"))
	}
	log, err := os.Create(filepath.Join(dir, "logs", program+"-"+namespace+".log"))
	if err != nil {
		return fmt.Errorf("log of %s: %w", program, err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(p.l.o.mcm, program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	p.running = append(p.running, cmd)
	return nil
}

// stop ends the pairs, and frees their namespaces.
func (p *pairs) stop(ctx context.Context) error {
	for _, cmd := range p.running {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                          // of the signal
	}
	return p.free(ctx)
}

// measure returns what the pairs use while do runs.
func (p *pairs) measure(ctx context.Context, do func() error) (u use, err error) {
	position, err := p.l.lab.AuditEnd()
	if err != nil {
		return u, err
	}
	before, _, err := p.requestsToTargets(ctx)
	if err != nil {
		return u, err
	}
	cpu, start := p.cpu(), time.Now()
	if err := do(); err != nil {
		return u, err
	}
	u.took = time.Since(start)
	u.cores = (p.cpu() - cpu).Seconds() / u.took.Seconds()
	for _, cmd := range p.running {
		rss := residentBytes(cmd.Process.Pid)
		u.memory, u.most = u.memory+rss, max(u.most, rss)
	}
	requests, err := p.l.lab.Requests(position)
	if err != nil {
		return u, err
	}
	for _, r := range requests {
		switch {
		case r.Cluster != "" || !ofPair(r):
		case r.Resource == "leases" && r.IsWrite():
			u.leases++
		default:
			u.control++
		}
	}
	watches, err := p.l.lab.OpenWatches(p.from)
	if err != nil {
		return u, err
	}
	for _, r := range watches {
		if r.Cluster == "" && ofPair(r) {
			u.controlWatches++
		}
	}
	after, open, err := p.requestsToTargets(ctx)
	u.leases, u.control = u.leases/u.took.Seconds(), u.control/u.took.Seconds()
	u.targets, u.targetWatches = float64(after-before)/u.took.Seconds(), open
	return u, err
}

// ofPair reports whether a request is one of Machine Controller Manager.
func ofPair(r harness.Request) bool {
	return strings.HasPrefix(r.UserAgent, "machine-controller-manager/") || strings.HasPrefix(r.UserAgent, "machine-controller/")
}

// requestsToTargets returns the requests by administrators to the light clusters, whose credentials
// the pairs have.
func (p *pairs) requestsToTargets(ctx context.Context) (requests, watches int64, err error) {
	all, err := p.l.lab.LightUsage(ctx)
	for _, namespace := range p.namespaces {
		requests, watches = requests+all[namespace]["admin"].Requests, watches+all[namespace]["admin"].Watches
	}
	return requests, watches, err
}

// cpu returns the CPU time of all processes.
func (p *pairs) cpu() (sum time.Duration) {
	for _, cmd := range p.running {
		sum += harness.CPUTime(cmd.Process.Pid)
	}
	return sum
}

func (p *pairs) print(name, when string, u use) {
	n := float64(len(p.namespaces))
	fmt.Printf("\n%d pairs of Machine Controller Manager, %s, in %.0f s:\n\n| | all | for each |\n|---|---|---|\n",
		len(p.namespaces), when, u.took.Seconds())
	for _, row := range []struct {
		what, name, unit string
		value            float64
	}{
		{"RSS, MB", "rss_mb", "MB", u.memory / 1e6},
		{"CPU, millicores", "cpu_millicores", "mcores", u.cores * 1e3},
		{"watches at the control cluster", "control_watches", "watches", float64(u.controlWatches)},
		{"watches at target clusters", "target_watches", "watches", float64(u.targetWatches)},
		{"Lease writes a second", "lease_writes_per_second", "1/s", u.leases},
		{"other requests to the control cluster a second", "control_requests_per_second", "1/s", u.control},
		{"requests to target clusters a second", "target_requests_per_second", "1/s", u.targets},
	} {
		fmt.Printf("| %s | %.2f | %.3f |\n", row.what, row.value, row.value/n)
		p.l.rows.add(name+"_"+row.name, row.value/n, row.unit)
	}
}
