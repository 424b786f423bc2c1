package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureQuota creates, rolls and deletes machines by fleets of different numbers of replicas, each
// of which may use the same small share of a core, so that replicas and not the API server are the
// limit: with twice as many the work should take half the time.
func measureQuota(ctx context.Context, lab *harness.Lab, o options, s sample) error {
	sizes, counts, err := o.scales()
	if err != nil {
		return err
	}
	for _, size := range sizes {
		var first []step
		for _, replicas := range counts {
			steps, err := size.limited(ctx, lab, replicas, o.cores)
			if err != nil {
				return err
			}
			if first == nil {
				first = steps
			}
			for i, step := range steps {
				// What as many replicas as this one would take that do not slow each other down.
				ideal := first[i].took.Seconds() * float64(counts[0]) / float64(replicas)
				fmt.Printf("%d replicas: %s %d machines in %.1f s, %.2f of %d times one of %d; %.1f ms of CPU for each machine\n", replicas,
					step.what, size.total(), step.took.Seconds(), ideal/step.took.Seconds(), replicas/counts[0], counts[0],
					step.cpu["fleet"].Seconds()*1e3/float64(size.total()))
				if replicas != counts[0] {
					s[fmt.Sprintf("quota_%s_time_ratio_of_%d_by_%d", step.what, size.total(), replicas)] = pair{value: step.took.Seconds() / ideal}
				}
			}
		}
	}
	return nil
}

// limited has a fleet of replicas with a share of a core each create, roll and delete the machines.
func (l load) limited(ctx context.Context, lab *harness.Lab, replicas int, cores float64) (steps []step, err error) {
	if err := scale(ctx, lab, replicas); err != nil {
		return nil, err
	}
	end, err := limitReplicas(lab, replicas, cores)
	if err != nil {
		return nil, err
	}
	steps, err = l.fleet(ctx, lab, replicas)
	return steps, errors.Join(err, end())
}

// quotaPeriod is the time in which a replica may use its share, the kernel's default.
const quotaPeriod = 100 * time.Millisecond

// limitReplicas puts the process of each replica into a cgroup with a share of a core. The returned
// function removes these, and fails when a process was replaced meanwhile.
func limitReplicas(lab *harness.Lab, replicas int, cores float64) (end func() error, err error) {
	before, err := replicaPids(lab)
	if err != nil {
		return nil, err
	}
	if len(before) != replicas {
		return nil, fmt.Errorf("expected %d processes of replicas, got %v", replicas, before)
	}
	limits := map[string]int{} // processes by their cgroup
	remove := func() (err error) {
		for group, pid := range limits {
			err = errors.Join(err, enter(filepath.Dir(group), pid), os.Remove(group))
		}
		return err
	}
	for replica, pid := range before {
		group, err := newCgroup(fmt.Sprintf("bench-%d-%s", os.Getpid(), replica), cores)
		if err == nil {
			limits[group] = pid
			err = enter(group, pid)
		}
		if err != nil {
			return nil, errors.Join(err, remove())
		}
	}
	return func() error {
		after, err := replicaPids(lab)
		if err == nil && !maps.Equal(before, after) {
			err = fmt.Errorf("expected the processes %v until the end, got %v: a replica was restarted, and had no limit then", before, after)
		}
		return errors.Join(err, remove())
	}, nil
}

// newCgroup creates a cgroup whose processes together may use a share of a core.
func newCgroup(name string, cores float64) (group string, err error) {
	quota := strconv.FormatInt(time.Duration(cores*float64(quotaPeriod)).Microseconds(), 10)
	period := strconv.FormatInt(quotaPeriod.Microseconds(), 10)
	settings := map[string]string{"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota}
	group = filepath.Join("/sys/fs/cgroup/cpu", name)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		group, settings = filepath.Join("/sys/fs/cgroup", name), map[string]string{"cpu.max": quota + " " + period}
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return "", fmt.Errorf("create a cgroup, for which the user must be root: %w", err)
	}
	for file, value := range settings {
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0o644); err != nil {
			return "", errors.Join(fmt.Errorf("limit cgroup %s to %g of a core: %w", group, cores, err), os.Remove(group))
		}
	}
	return group, nil
}

// enter moves a process into a cgroup.
func enter(group string, pid int) error {
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("move process %d into cgroup %s: %w", pid, group, err)
	}
	return nil
}

// replicaPids returns the processes of the replicas.
func replicaPids(lab *harness.Lab) (map[string]int, error) {
	pids, err := lab.Pids()
	maps.DeleteFunc(pids, func(name string, _ int) bool { return kindOfProcess(name) != "fleet" })
	return pids, err
}
