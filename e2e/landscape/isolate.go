package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// fault is one of a target cluster, or of the account of its namespace.
type fault struct {
	name, describes string
	light           harness.LightFault
	link            harness.Fault
	// floods is true for a fault that shows in new lists and watches.
	floods bool
	// account is true for a cloud that throttles the account of the namespace.
	account bool
}

func faults() []fault {
	return []fault{
		{name: "none", describes: "none"},
		{name: "hangs", describes: "the API server hangs", light: harness.LightFault{DelayMillis: -1}},
		{name: "late", describes: "the API server answers after 60 s", light: harness.LightFault{DelayMillis: 60_000}},
		{name: "throttles", describes: "the API server throttles", light: harness.LightFault{Throttled: true}},
		{name: "cut", describes: "the link is cut", link: harness.Cut("")},
		{name: "nodes", describes: "100,000 Nodes", light: harness.LightFault{Nodes: 100_000}, floods: true},
		{name: "bytes", describes: "a list of 1 GiB", light: harness.LightFault{AnswerBytes: 1 << 30}, floods: true},
		{name: "events", describes: "events without a pause", light: harness.LightFault{Events: true}, floods: true},
		{name: "account", describes: "the cloud throttles its account", account: true},
	}
}

// measureIsolation measures how long it takes to add a machine to each of the other clusters while
// one has a fault, each time next to the same without.
func (l *landscape) measureIsolation(ctx context.Context) error {
	sick, others := l.members[len(l.members)-1], l.names()[:len(l.members)-1]
	if !sick.IsLight() {
		return fmt.Errorf("expected a light cluster, whose faults these are, got none; see --light")
	}
	others = others[max(0, len(others)-l.o.sample):]
	fmt.Printf("\nTo add a machine to each of %d target clusters, twice, while another (%s) has a fault:\n\n", len(others), sick.Name)
	fmt.Print("| fault | time until it runs without | with | ratio of p50 | of p99 |\n|---|---|---|---|---|\n")
	for _, f := range faults() {
		if l.o.only != "" && l.o.only != f.name {
			continue
		}
		var without, with durations
		for range 2 { // in turns, so that what else changes meanwhile counts for both
			took, err := l.addAndRemove(ctx, others)
			if err != nil {
				return err
			}
			without = append(without, took...)
			if err := l.setFault(ctx, sick, f); err != nil {
				return err
			}
			if took, err = l.addAndRemove(ctx, others); err != nil {
				return fmt.Errorf("%s: %w", f.describes, err)
			}
			with = append(with, took...)
			if err := l.recover(ctx, sick); err != nil {
				return fmt.Errorf("after %s: %w", f.describes, err)
			}
		}
		p50, p99 := ratio(with, without, 50), ratio(with, without, 99)
		fmt.Printf("| %s | %s | %s | %.2f | %.2f |\n", f.describes, without, with, p50, p99)
		l.rows.addDurations("isolate_"+f.name, with)
		l.rows.addDurations("isolate_before_"+f.name, without)
		l.rows.add("isolate_"+f.name+"_ratio_of_p50", p50, "×")
		l.rows.add("isolate_"+f.name+"_ratio_of_p99", p99, "×")
	}
	return nil
}

func ratio(a, b durations, p int) float64 { return float64(a.percentile(p)) / float64(b.percentile(p)) }

// addAndRemove adds a machine to clusters, and removes one again. It returns how long the first
// took.
func (l *landscape) addAndRemove(ctx context.Context, namespaces []string) (durations, error) {
	took, err := l.change(ctx, namespaces, l.o.interval, bigger)
	if err != nil {
		return nil, err
	}
	_, err = l.change(ctx, namespaces, 0, smaller)
	return took, err
}

// setFault begins a fault of a cluster, which gets work.
func (l *landscape) setFault(ctx context.Context, sick harness.Member, f fault) error {
	if f.account {
		if err := l.throttleAccount(ctx, sick.Name); err != nil {
			return err
		}
	}
	if err := l.lab.SetLightFault(ctx, sick.Name, f.light); err != nil {
		return err
	}
	if f.floods { // lists and watches begin when connections end
		if err := l.lab.SetFault(ctx, sick.Name, "server", harness.Refuse()); err != nil {
			return err
		}
	}
	if err := l.lab.SetFault(ctx, sick.Name, "server", f.link); err != nil {
		return err
	}
	return l.write(ctx, sick.Name, l.next(sick.Name, func(p pool) pool { return pool{2 * p.size, p.round + 1} }))
}

// recover ends the fault of a cluster.
func (l *landscape) recover(ctx context.Context, sick harness.Member) error {
	if err := l.lab.SetLightFault(ctx, sick.Name, harness.LightFault{}); err != nil {
		return err
	}
	if err := l.lab.SetFault(ctx, sick.Name, "server", harness.Refuse()); err != nil { // so that Nodes are listed again
		return err
	}
	if err := l.lab.SetFault(ctx, sick.Name, "server", harness.Fault{}); err != nil {
		return err
	}
	if err := l.setZone(ctx, sick.Name, zone, `[]`); err != nil {
		return err
	}
	l.next(sick.Name, func(p pool) pool { return pool{p.size / 2, p.round} })
	return l.write(ctx, sick.Name, l.pool(sick.Name)) // it recovers while others are measured
}

// zone is that of all machines, throttled the one in which calls are throttled.
const zone, throttled = "sim-1a", "sim-1b"

// throttleAccount has the calls for the machines of a namespace throttled that are created from now
// on. Each namespace has its own account.
func (l *landscape) throttleAccount(ctx context.Context, namespace string) error {
	return l.setZone(ctx, namespace, throttled, fmt.Sprintf(`[{"zones":[%q],"kind":"throttled","rate":1,"retryAfter":"5s"}]`, throttled))
}

// setZone sets the zone of the class of a namespace, and the faults of the cloud.
func (l *landscape) setZone(ctx context.Context, namespace, zone, faults string) error {
	patch := fmt.Appendf(nil, `{"providerSpec":{"zone":%q}}`, zone)
	_, err := l.lab.Machines.MachineV1alpha1().MachineClasses(namespace).Patch(ctx, class, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set the zone of %s: %w", namespace, err)
	}
	return l.lab.Cloud.Set(ctx, fmt.Sprintf(`{"faults":%s}`, faults))
}
