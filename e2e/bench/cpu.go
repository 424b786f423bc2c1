package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
)

const (
	// cpuMachines of each MachineDeployment; one is created or deleted every cpuPace, so 10 machines
	// in a second.
	cpuMachines = 10
	cpuPace     = time.Second
	// cpuFew machines have VMs and simulated Nodes, whose kubelets report. cpuMany have none, so that
	// the lab can carry them.
	cpuFew, cpuMany = 1000, 4000
	// cpuTimeout bounds the wait for machines.
	cpuTimeout = 30 * time.Minute
)

// measureCPU measures the CPU time of replicas: at rest without machines, with few and with many,
// for some time each, and while machines are created and deleted at a known rate. It is CPU time,
// so that a busy computer changes it little.
func measureCPU(ctx context.Context, lab *harness.Lab, rest time.Duration, s sample) error {
	b := burden{lab: lab, namespace: "cpu"}
	if err := lab.Prepare(ctx, b.namespace, ""); err != nil {
		return err
	}
	atRest := func(machines int) (used, error) {
		if err := rebalanced(ctx, lab); err != nil {
			return used{}, err
		}
		u, err := b.during(ctx, func() error { return pause(ctx, rest) })
		s[fmt.Sprintf("cpu_rest_millicores_of_%d", machines)] = pair{value: u.most() * 1e3}
		fmt.Printf("%d machines at rest: %s\n", machines, u)
		return u, err
	}
	atWork := func(what string, resting used, do func() error) error {
		u, err := b.during(ctx, do)
		s["cpu_"+what+"_ms_per_machine"] = pair{value: u.beyond(resting) / cpuFew * 1e3}
		fmt.Printf("%d machines, %.0f a second, %s: %s\n", cpuFew, float64(cpuMachines)/cpuPace.Seconds(), what, u)
		return err
	}
	none, err := atRest(0)
	if err != nil {
		return err
	}
	if err := atWork("create", none, func() error { return b.grow(ctx, cpuFew/cpuMachines) }); err != nil {
		return err
	}
	few, err := atRest(cpuFew)
	if err != nil {
		return err
	}
	if err := atWork("delete", few, func() error { return b.shrink(ctx, 0) }); err != nil {
		return err
	}
	if _, err := standStill(ctx, lab, func() error {
		return addMachines(ctx, lab, preload.Load{Namespace: many, Deployments: cpuMany / perDeployment, Machines: perDeployment})
	}); err != nil {
		return err
	}
	for _, replica := range none.replicas {
		if err := rests(ctx, lab, replica); err != nil {
			return err
		}
	}
	_, err = atRest(cpuMany)
	return err
}

// burden is the machines that CPU is measured with.
type burden struct {
	lab         *harness.Lab
	namespace   string
	deployments int
}

// grow creates MachineDeployments at cpuPace until there are so many, and waits until their
// machines run.
func (b *burden) grow(ctx context.Context, deployments int) error {
	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace)
	for ; b.deployments < deployments; b.deployments++ {
		err := harness.Eventually(ctx, "a MachineDeployment is created", func(ctx context.Context) error {
			_, err := api.Create(ctx, harness.Deployment(b.namespace, b.name(b.deployments), cpuMachines), metav1.CreateOptions{})
			return ignore(apierrors.IsAlreadyExists, err)
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, cpuPace); err != nil {
			return err
		}
	}
	return b.running(ctx)
}

// shrink deletes MachineDeployments at cpuPace until there are so many, and waits until their
// machines are gone.
func (b *burden) shrink(ctx context.Context, deployments int) error {
	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace)
	for ; b.deployments > deployments; b.deployments-- {
		err := harness.Eventually(ctx, "a MachineDeployment is deleted", func(ctx context.Context) error {
			return ignore(apierrors.IsNotFound, api.Delete(ctx, b.name(b.deployments-1), metav1.DeleteOptions{}))
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, cpuPace); err != nil {
			return err
		}
	}
	return b.running(ctx)
}

func (b *burden) name(i int) string { return fmt.Sprintf("md-%d", i) }

// ignore returns the error, or nil if it is the expected one: a busy API server answers late, and
// the request is repeated.
func ignore(expected func(error) bool, err error) error {
	if expected(err) {
		return nil
	}
	return err
}

// running waits until all machines of the MachineDeployments run, and no others exist.
func (b *burden) running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cpuTimeout)
	defer cancel()
	want := b.deployments * cpuMachines
	return harness.EventuallyEvery(ctx, time.Second, fmt.Sprintf("%d machines run", want), func(ctx context.Context) error {
		phases, err := b.lab.Phases(ctx, b.namespace)
		if err == nil && (phases[v1alpha1.MachineRunning] != want || len(phases) > min(want, 1)) {
			err = fmt.Errorf("machines by phase: %v", phases)
		}
		return err
	})
}

// used counts what replicas have used within some time.
type used struct {
	took     time.Duration
	replicas []string
	seconds  []float64 // of CPU, of each replica
}

// during measures the replicas while do runs.
func (b *burden) during(ctx context.Context, do func() error) (used, error) {
	replicas, err := b.lab.Replicas(ctx)
	if err != nil {
		return used{}, err
	}
	before, err := b.seconds(ctx, replicas)
	if err != nil {
		return used{}, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return used{}, err
	}
	u := used{took: time.Since(start), replicas: replicas}
	after, err := b.seconds(ctx, replicas)
	for i := range after {
		u.seconds = append(u.seconds, after[i]-before[i])
	}
	return u, err
}

func (b *burden) seconds(ctx context.Context, replicas []string) (all []float64, err error) {
	for _, replica := range replicas {
		seconds, err := b.lab.Metric(ctx, replica, "process_cpu_seconds_total")
		if err != nil {
			return nil, err
		}
		all = append(all, seconds)
	}
	return all, nil
}

// most returns the share of a core that the busiest replica has used.
func (u used) most() (most float64) {
	for _, seconds := range u.seconds {
		most = max(most, seconds/u.took.Seconds())
	}
	return most
}

// cores returns how many cores all replicas have used together.
func (u used) cores() (cores float64) {
	for _, seconds := range u.seconds {
		cores += seconds / u.took.Seconds()
	}
	return cores
}

// beyond returns the seconds of CPU that all replicas have used beyond those at rest.
func (u used) beyond(rest used) float64 { return (u.cores() - rest.cores()) * u.took.Seconds() }

func (u used) String() string {
	var parts []string
	for i, replica := range u.replicas {
		parts = append(parts, fmt.Sprintf("%s used %.1f s of CPU, %.1f millicores", replica, u.seconds[i], u.seconds[i]/u.took.Seconds()*1e3))
	}
	return fmt.Sprintf("in %.0f s %s", u.took.Seconds(), strings.Join(parts, ", "))
}
