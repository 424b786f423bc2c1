package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// pageChanges is how many machines change in a second in a way that the page shows.
	pageChanges = 20
	// pageTime is how long each state is measured at the most, and pageSettles how long is waited
	// before.
	pageTime, pageSettles = time.Minute, 10 * time.Second
)

// measurePage measures what an open page costs a replica that owns all machines: at rest, and while
// machines change, each without and with the page, in a separate lab.
func measurePage(ctx context.Context, dir string, machines int, rest time.Duration, s sample) (err error) {
	lab, err := upWithMachines(ctx, harness.Options{Dir: filepath.Join(dir, "page"), Replicas: 1}, machines)
	if lab != nil {
		defer func() { err = errors.Join(err, lab.Down(ctx)) }()
	}
	if err != nil {
		return err
	}
	list, err := lab.Machines.MachineV1alpha1().Machines(many).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	v := &viewing{lab: lab, machines: list.Items, time: min(rest, pageTime)}
	var costs [4]pageCost
	for i, what := range []string{"at rest", "while machines change", "at rest, with a page", "while machines change, with a page"} {
		if i == 2 {
			stop, err := v.open(ctx)
			if err != nil {
				return err
			}
			defer stop()
			s["page_first_kb_of_10000"] = pair{value: float64(v.bytes.Load()) / 1e3}
		}
		if costs[i], err = v.measure(ctx, i%2 == 1); err != nil {
			return err
		}
		fmt.Printf("%d machines %s: %s\n", len(v.machines), what, costs[i])
	}
	s["page_rest_millicores_of_10000"] = pair{value: 1e3 * (costs[2].cores - costs[0].cores)}
	s["page_busy_millicores_of_10000"] = pair{value: 1e3 * (costs[3].cores - costs[1].cores)}
	s["page_busy_kb_of_10000"] = pair{value: costs[3].sent / 1e3}
	s["page_busy_received_kb_of_10000"] = pair{value: (costs[3].received - costs[1].received) / 1e3}
	return nil
}

// pageCost counts the cores of a replica, the bytes that it sends to the viewer, and those that it
// receives from the control cluster, each in a second.
type pageCost struct{ cores, sent, received float64 }

func (c pageCost) String() string {
	return fmt.Sprintf("%.1f millicores, %.1f kB/s to the viewer, %.1f kB/s from the control cluster", c.cores*1e3, c.sent/1e3, c.received/1e3)
}

// viewing is a lab whose page may be open.
type viewing struct {
	lab      *harness.Lab
	machines []v1alpha1.Machine
	time     time.Duration // for which each state is measured
	next     int           // the next machine that changes
	bytes    atomic.Int64  // that the viewer has received
}

// open opens the page, and waits until its first state was received.
func (v *viewing) open(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.lab.Endpoint(harness.Fleet)+"/page/events", http.NoBody)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open the page: %w", err)
	}
	answer, err := http.DefaultTransport.RoundTrip(request) //nolint:bodyclose // stop closes it
	if err != nil || answer.StatusCode != http.StatusOK {
		cancel()
		return nil, fmt.Errorf("open the page: expected status 200, got %v, %w", answer, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(v, answer.Body) // until it is canceled
	}()
	stop = func() {
		cancel()
		_ = answer.Body.Close()
		<-ended
	}
	const least = 10 // bytes of a machine
	return stop, harness.Eventually(ctx, "the page shows all machines", func(context.Context) error {
		if got := v.bytes.Load(); got < int64(least*len(v.machines)) {
			return fmt.Errorf("%d bytes were received", got)
		}
		return nil
	})
}

// Write counts what the viewer receives.
func (v *viewing) Write(data []byte) (int, error) {
	v.bytes.Add(int64(len(data)))
	return len(data), nil
}

// measure measures for some time, at rest or while machines change.
func (v *viewing) measure(ctx context.Context, change bool) (c pageCost, err error) {
	do := func(d time.Duration) error {
		if !change {
			return pause(ctx, d)
		}
		ticker := time.NewTicker(time.Second / pageChanges)
		defer ticker.Stop()
		for range int(d.Seconds() * pageChanges) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
			if err := v.change(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := do(pageSettles); err != nil {
		return c, err
	}
	sent := v.bytes.Load()
	b := burden{lab: v.lab}
	var u used
	came, took, err := during(ctx, v.lab, func() (err error) {
		u, err = b.during(ctx, func() error { return do(v.time) })
		return err
	})
	if err != nil {
		return c, err
	}
	return pageCost{
		cores: u.cores(), sent: float64(v.bytes.Load()-sent) / took.Seconds(), received: came[harness.Fleet].control / took.Seconds(),
	}, nil
}

// change changes since when a machine is in its phase: the page shows it, and no controller acts on
// it.
func (v *viewing) change(ctx context.Context) error {
	m := v.machines[v.next%len(v.machines)]
	v.next++
	patch := fmt.Appendf(nil, `{"status":{"currentStatus":{"lastUpdateTime":%q}}}`, time.Now().UTC().Format(time.RFC3339))
	api := v.lab.Machines.MachineV1alpha1().Machines(m.Namespace)
	if _, err := api.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("change machine %s: %w", m.Name, err)
	}
	return nil
}
