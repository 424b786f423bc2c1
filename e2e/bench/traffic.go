package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// changes is how many machines, and their Nodes, are changed to measure which replicas receive the
	// changes.
	changes = 2000
	// writers is how many goroutines change them.
	writers = 16
)

// traffic is how many bytes a replica has received from the two clusters, through its proxies.
type traffic struct{ control, target float64 }

// receivedForOwn changes machines and Nodes, and returns how many bytes a replica receives for each
// that it owns, without the constant traffic; the maximum of several replicas.
func receivedForOwn(ctx context.Context, lab *harness.Lab, size int) (most traffic, err error) {
	list, err := lab.Machines.MachineV1alpha1().Machines(many).List(ctx, metav1.ListOptions{})
	if err != nil {
		return most, fmt.Errorf("list machines: %w", err)
	}
	var changed []v1alpha1.Machine
	for i := 0; i < len(list.Items); i += max(len(list.Items)/changes, 1) {
		changed = append(changed, list.Items[i])
	}
	owned, err := ownedOf(ctx, lab, changed)
	if err != nil {
		return most, err
	}
	always, came, err := receivedOf(ctx, lab, changed)
	if err != nil {
		return most, err
	}
	for i := range size {
		replica := replicaName(i)
		if owned[replica] == 0 {
			return most, fmt.Errorf("expected %s to own some of %d machines, got %v", replica, len(changed), owned)
		}
		n := float64(owned[replica])
		each := traffic{
			control: (came[replica].control - always[replica].control) / n,
			target:  (came[replica].target - always[replica].target) / n,
		}
		fmt.Printf("%d replicas: %d machines and Nodes change, %d of them are %s's; for each of these it receives %.2f kB from the control "+
			"cluster, %.2f kB from the target cluster\n",
			size, len(changed), owned[replica], replica, each.control/1e3, each.target/1e3)
		most = traffic{control: max(most.control, each.control), target: max(most.target, each.target)}
	}
	return most, nil
}

// receivedOf returns what each replica receives while machines and their Nodes change, and what of
// that is constant traffic. What replicas list is not of the changes, so that a measurement during
// which one lists is repeated: the safety controller counts machines once a minute, and watches of
// slots are merged a minute after slots have moved.
func receivedOf(ctx context.Context, lab *harness.Lab, changed []v1alpha1.Machine) (always, came map[string]traffic, err error) {
	for {
		position, err := lab.AuditEnd()
		if err != nil {
			return nil, nil, err
		}
		always, quiet, err := during(ctx, lab, func() error { return pause(ctx, 5*time.Second) })
		if err != nil {
			return nil, nil, err
		}
		came, busy, err := during(ctx, lab, func() error {
			return errors.Join(touch(ctx, lab, changed), pause(ctx, settled))
		})
		if err != nil {
			return nil, nil, err
		}
		requests, err1 := lab.Requests(position)
		watches, err2 := lab.Watches(position)
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(slices.Concat(requests, watches), isList) {
			continue
		}
		longer := busy.Seconds() / quiet.Seconds()
		for replica, t := range always {
			always[replica] = traffic{control: longer * t.control, target: longer * t.target}
		}
		return always, came, nil
	}
}

// isList reports whether a replica lists objects of slots, also as the beginning of a watch.
func isList(r harness.Request) bool {
	return r.IsFleet() && slices.Contains(slotted, r.Resource) && (r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true"))
}

// during returns what each replica receives while f runs, and how long that takes.
func during(ctx context.Context, lab *harness.Lab, do func() error) (came map[string]traffic, took time.Duration, err error) {
	start := time.Now()
	before, err := received(ctx, lab)
	if err != nil {
		return nil, 0, err
	}
	if err := do(); err != nil {
		return nil, 0, err
	}
	after, err := received(ctx, lab)
	if err != nil {
		return nil, 0, err
	}
	for replica, t := range after {
		after[replica] = traffic{control: t.control - before[replica].control, target: t.target - before[replica].target}
	}
	return after, time.Since(start), nil
}

// received returns what each replica has received since its proxies were created.
func received(ctx context.Context, lab *harness.Lab) (map[string]traffic, error) {
	links, err := lab.Links(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]traffic{}
	for _, link := range links {
		t := all[link.Process]
		switch link.Link {
		case harness.LinkControl:
			t.control = float64(link.AnswerBytes)
		case harness.LinkTarget:
			t.target = float64(link.AnswerBytes)
		}
		all[link.Process] = t
	}
	return all, nil
}

// touch changes an annotation of machines and their Nodes that no template contains, each time to
// another value.
func touch(ctx context.Context, lab *harness.Lab, machines []v1alpha1.Machine) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/touched-at":%q}}}`, time.Now())
	work := make(chan v1alpha1.Machine)
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for m := range work {
				if err := touchOne(ctx, lab, m, patch); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, m := range machines {
		work <- m
	}
	close(work)
	running.Wait()
	return failed
}

func touchOne(ctx context.Context, lab *harness.Lab, m v1alpha1.Machine, patch []byte) error {
	if _, err := lab.Machines.MachineV1alpha1().Machines(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change machine %s: %w", m.Name, err)
	}
	node := m.Labels[v1alpha1.LabelNode]
	if _, err := lab.Target.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change Node %s: %w", node, err)
	}
	return nil
}
