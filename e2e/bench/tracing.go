package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// variant is a lab whose replicas do the same work as those of others, with one difference.
type variant struct {
	name    string
	options harness.Options
	lab     *harness.Lab
	seconds []float64 // of CPU of all replicas, of each round
}

// tracingVariants returns the settings that are compared. Those that trace have a Jaeger, whose
// CPU time does not count.
func tracingVariants() []*variant {
	return []*variant{
		{name: "off"},
		{name: "10_percent", options: harness.Options{Tracing: true, TraceRatio: 0.1}},
		{name: "100_percent", options: harness.Options{Tracing: true, TraceRatio: 1}},
	}
}

// measureTracing compares the CPU time of replicas without tracing and with it. The labs run at the
// same time and work in turns, so that other work of the computer affects all; off works twice
// in each round, and what differs between these two is noise.
func measureTracing(ctx context.Context, dir string, rounds int, s sample) error {
	variants := tracingVariants()
	seconds, err := compare(ctx, dir, rounds, variants)
	if err != nil {
		return err
	}
	off := seconds["off"]
	s["trace_cpu_off_seconds"] = pair{value: off}
	s["trace_cpu_ratio_of_off"] = pair{value: max(seconds["off again"]/off, off/seconds["off again"])}
	for _, v := range variants[1:] {
		s["trace_cpu_ratio_of_"+v.name] = pair{value: seconds[v.name] / ((off + seconds["off again"]) / 2)}
	}
	return nil
}

// compare returns the median CPU time of the variants, of the first one also when it has worked a
// second time, as again.
func compare(ctx context.Context, dir string, rounds int, variants []*variant) (seconds map[string]float64, err error) {
	defer func() {
		for _, v := range variants {
			if v.lab != nil {
				err = errors.Join(err, v.lab.Down(ctx))
			}
		}
	}()
	for _, v := range variants {
		v.options.Dir, v.options.Replicas = filepath.Join(dir, "tracing-"+v.name), fleetSize
		if v.lab, err = harness.Up(ctx, v.options); err != nil {
			return nil, err
		}
		if err := errors.Join(v.lab.WaitHeld(ctx, slots), v.lab.Cloud.Set(ctx, settings)); err != nil {
			return nil, err
		}
	}
	first := variants[0]
	again := &variant{name: first.name + " again", lab: first.lab}
	order := append(append([]*variant{}, variants...), again)
	for round := range rounds {
		for i := range order {
			v := order[(i+round)%len(order)] // none is always the first
			took, err := v.work(ctx, fmt.Sprintf("tracing-%d-%d-%d", os.Getpid(), round, i))
			if err != nil {
				return nil, fmt.Errorf("tracing %s: %w", v.name, err)
			}
			fmt.Printf("round %d of %d: %s: %.2f s of CPU\n", round+1, rounds, v.name, took)
			v.seconds = append(v.seconds, took)
		}
	}
	seconds = map[string]float64{}
	for _, v := range order {
		seconds[v.name] = medianOf(v.seconds)
	}
	return seconds, nil
}

// medianOf returns the median of numbers.
func medianOf(numbers []float64) float64 {
	var samples []sample
	for _, n := range numbers {
		samples = append(samples, sample{"n": {value: n}})
	}
	return median(samples, func(s sample) float64 { return s["n"].value })
}

// work creates machines, rolls them and deletes them, and returns the CPU time of the replicas
// meanwhile, in seconds.
func (v *variant) work(ctx context.Context, namespace string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	if err := rebalanced(ctx, v.lab); err != nil {
		return 0, err
	}
	if err := v.lab.Prepare(ctx, namespace, ""); err != nil {
		return 0, err
	}
	before, err := cpuSeconds(ctx, v.lab)
	if err != nil {
		return 0, err
	}
	l := load{deployments: deployments, machines: machines, surge: intstr.FromInt32(machines)}
	_, err = timed(ctx, v.lab, namespace, run(l.total()), func() error { return l.deploy(ctx, v.lab, namespace) })
	if err != nil {
		return 0, err
	}
	if _, err := l.roll(ctx, v.lab, namespace); err != nil {
		return 0, err
	}
	_, err = timed(ctx, v.lab, namespace, gone, func() error {
		return v.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, 5*settled); err != nil { // late work, and spans that were not sent yet
		return 0, err
	}
	after, err := cpuSeconds(ctx, v.lab)
	return after - before, err
}

// cpuSeconds returns the CPU time of all replicas since they were started.
func cpuSeconds(ctx context.Context, lab *harness.Lab) (seconds float64, err error) {
	for i := range fleetSize {
		one, err := lab.Metric(ctx, replicaName(i), "process_cpu_seconds_total")
		if err != nil {
			return 0, err
		}
		seconds += one
	}
	return seconds, nil
}
