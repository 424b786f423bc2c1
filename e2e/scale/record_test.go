//go:build e2e

package scale

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// sample is the state of the fleet at one moment.
type sample struct {
	At time.Duration
	// Replicas is the number of pods that the StatefulSet has, Serving that of replicas that hold
	// slots.
	Replicas, Serving int
	// Load is the value that the autoscaler gets: how many replicas the fleet needs.
	Load float64
	// Transitions and Running are machines, by the API server.
	Transitions, Running int
	// Event names what happened here.
	Event string
}

// record is the samples of a run.
type record struct {
	begin time.Time

	mu      sync.Mutex
	samples []sample
	event   string // for the next sample
}

func (r *record) last() sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return sample{}
	}
	return r.samples[len(r.samples)-1]
}

// mark records an event.
func (s *scene) mark(event string) {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.record.event = event
	s.t.Logf("%4.0f s: %s", time.Since(s.record.begin).Seconds(), event)
}

// sample adds samples until ctx ends. A moment without a load is left out.
func (s *scene) sample(ctx context.Context, query string) error {
	return every(ctx, func() error {
		next := sample{At: time.Since(s.record.begin)}
		load, known, err := s.prom.Value(ctx, query)
		serving, _, err2 := s.prom.Value(ctx, "count(mcf_owned_slots > 0)")
		phases, err3 := s.lab.Phases(ctx, namespace)
		pods, err4 := s.pods(ctx)
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return err
		}
		if !known {
			return nil
		}
		next.Load, next.Serving, next.Replicas, next.Running = load, int(serving), pods, phases[v1alpha1.MachineRunning]
		for phase, n := range phases {
			if phase != v1alpha1.MachineRunning {
				next.Transitions += n
			}
		}
		s.record.mu.Lock()
		defer s.record.mu.Unlock()
		next.Event, s.record.event = s.record.event, ""
		if last := len(s.record.samples) - 1; last < 0 || s.record.samples[last].Replicas != next.Replicas {
			s.t.Logf("%4.0f s: %d replicas, the load is %.2f", next.At.Seconds(), next.Replicas, next.Load)
		}
		s.record.samples = append(s.record.samples, next)
		return nil
	})
}

// write writes the record to bin, as a table and as a plot.
func (r *record) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	bin, err := harness.Bin()
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(bin, "scaling.csv"))
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	table := csv.NewWriter(file)
	rows := [][]string{{"seconds", "replicas", "serving", "load", "transitions", "running", "event"}}
	for _, s := range r.samples {
		rows = append(rows, []string{
			strconv.FormatFloat(s.At.Seconds(), 'f', 1, 64), strconv.Itoa(s.Replicas), strconv.Itoa(s.Serving),
			strconv.FormatFloat(s.Load, 'f', 3, 64), strconv.Itoa(s.Transitions), strconv.Itoa(s.Running), s.Event,
		})
	}
	return errors.Join(table.WriteAll(rows), file.Close(), os.WriteFile(filepath.Join(bin, "scaling.svg"), []byte(plot(r.samples)), 0o600))
}
