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

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/controlplane"
)

// Snapshot is what a snapshot or a restore is about.
type Snapshot struct {
	// File is an absolute path. A snapshot makes it, and does not overwrite one.
	File string `json:"file"`
	// BumpRevision is how much a restore raises etcd's revision. With 0 revisions are given out twice, and watches that go
	// on from one of the lost future miss what happens, as careless restores have it.
	BumpRevision uint64 `json:"bumpRevision,omitempty"`
}

// Save saves what etcd holds, of all clusters.
func (l *Launcher) Save(ctx context.Context, s Snapshot) error {
	return l.hyperkube(ctx, l.etcd.SaveCommand(s.File))
}

// Restore makes etcd hold what it held at a snapshot. API servers, controller managers and schedulers end before, and
// start in order after it; when Restore returns they are ready. Nothing else is touched.
func (l *Launcher) Restore(ctx context.Context, s Snapshot) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	if _, err := os.Stat(s.File); err != nil {
		return fmt.Errorf("the snapshot: %w", err) // Found before anything has ended.
	}
	data, restored := l.etcd.DataDir(), l.etcd.DataDir()+".restored"
	if err := os.RemoveAll(restored); err != nil {
		return fmt.Errorf("removing what an earlier restore has left: %w", err)
	}
	if err := l.hyperkube(ctx, l.etcd.RestoreCommand(s.File, restored, s.BumpRevision)); err != nil {
		return err
	}
	// The last started end first, so that the API servers have an etcd as long as they live.
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
			names = append(names, cluster.ProcessName(component))
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

// hyperkube runs one of its programs, to its end.
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
