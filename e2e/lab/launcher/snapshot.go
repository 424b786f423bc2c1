package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
)

// Snapshot has the parameters of a snapshot or a restore.
type Snapshot struct {
	// File is an absolute path. A snapshot creates it, and does not overwrite one.
	File string `json:"file"`
	// BumpRevision is how much a restore raises etcd's revision. With 0 revisions are used twice, and
	// watches that continue from a lost revision miss changes, as after incorrect restores.
	BumpRevision uint64 `json:"bumpRevision,omitempty"`
	// Away is for how long a restore keeps the API servers away at least. Within the fence of a
	// fleet, 9 s, its replicas act on restored objects by what they know from before.
	Away time.Duration `json:"away,omitempty"`
}

// Save saves the content of etcd, of all clusters.
func (l *Launcher) Save(ctx context.Context, s Snapshot) error {
	return l.hyperkube(ctx, l.etcd.SaveCommand(s.File))
}

// Restore restores etcd from a snapshot. API servers, controller managers and schedulers end
// before, and start in order after it; when Restore returns they are ready. Nothing else is
// changed.
func (l *Launcher) Restore(ctx context.Context, s Snapshot) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	if _, err := os.Stat(s.File); err != nil {
		return fmt.Errorf("the snapshot: %w", err) // Found before anything has ended.
	}
	data, restored := l.etcd.DataDir(), l.etcd.DataDir()+".restored"
	if err := os.RemoveAll(restored); err != nil {
		return fmt.Errorf("removing the files of an earlier restore: %w", err)
	}
	if err := l.hyperkube(ctx, l.etcd.RestoreCommand(s.File, restored, s.BumpRevision)); err != nil {
		return err
	}
	// In the reverse order of their start, so that the API servers have an etcd until they end.
	var errs []error
	for _, name := range slices.Backward(append([]string{controlplane.EtcdName}, l.components()...)) {
		errs = append(errs, l.supervisor.Kill(name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(data), os.Rename(restored, data)); err != nil {
		return fmt.Errorf("putting the snapshot in etcd's place: %w", err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("keeping the API servers away for %s: %w", s.Away, context.Cause(ctx))
	case <-l.clock.After(s.Away):
	}
	if err := l.supervisor.Start(controlplane.EtcdName); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, cluster := range l.clusterList() {
		group.Go(func() error { return l.restartCluster(groupCtx, cluster) })
	}
	return group.Wait()
}

// components are the names of all processes of all clusters, API servers first.
func (l *Launcher) components() []string {
	var names []string
	for _, component := range []string{controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler} {
		for _, cluster := range l.clusterList() {
			if slices.Contains(cluster.Components(), component) {
				names = append(names, cluster.ProcessName(component))
			}
		}
	}
	return names
}

// restartCluster starts the components of a cluster again, and waits until they are ready.
func (l *Launcher) restartCluster(ctx context.Context, cluster *controlplane.Cluster) error {
	specs := cluster.Specs()
	for _, spec := range specs {
		if err := l.supervisor.Start(spec.Name); err != nil {
			return err
		}
		if err := l.ready(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

// hyperkube runs one of its programs and waits for its end.
func (l *Launcher) hyperkube(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, l.options.binary(hyperkubeBinary), args...)
	output, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err // It names the path.
	case err != nil:
		return fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(output)))
	}
	return nil
}
