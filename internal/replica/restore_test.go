package replica

import (
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	// longestBackupAge bounds the age of a backup when it is restored.
	longestBackupAge = time.Minute
	// leastAway and mostAway bound the time for which the API server is away before it returns with
	// the backup: longer than the fence, as docs/limits.md requires.
	leastAway, mostAway = 11 * time.Second, 40 * time.Second
)

// restoreEtcd takes a backup of a cluster and restores it later, as docs/limits.md requires: the
// API server is away for longer than the fence, and the revision is raised. Revisions that are used
// twice are tested in shard/verification/simulation and e2e/chaos.
func (t *trial) restoreEtcd() {
	if time.Now().Before(t.restoreDue) {
		return
	}
	server, place := t.control, atControl
	if t.random.IntN(2) == 0 {
		server, place = t.target, atTarget
	}
	outage := &disturbance{
		name: "etcd of the " + place + " cluster is about to be restored", there: true, back: true, refuses: true,
		of: func(q request) bool { return q.place == place || q.place != atCloud && t.control == t.target },
	}
	t.logf("etcd of the %s cluster is backed up", place)
	backup, begins := server.Save(), time.Now().Add(t.between(5*time.Second, longestBackupAge))
	t.restoreDue = begins.Add(t.between(leastAway, mostAway))
	t.later = append(t.later,
		event{begins, func() {
			t.logf("%s", outage.name)
			t.network.disturb(outage)
		}},
		event{t.restoreDue, func() {
			t.logf("etcd of the %s cluster is restored", place)
			server.Restore(backup)
			t.afterRestore(server)
			t.network.heal(outage)
		}})
}

// afterRestore does what operators and the rest of Kubernetes do after a restore.
func (t *trial) afterRestore(server *apiserver.Server) {
	t.restores++
	if server == t.control {
		t.oracle.noteRestore()
		t.endForgottenVMs()
		t.applyRoots()
		t.deleteLostMachines()
	}
	if server == t.target {
		t.correctNodes()
	}
	t.followHealth()
}

// noteRestore records the time of the restore.
func (o *oracle) noteRestore() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.restored = time.Now()
}

// endForgottenVMs ends the VMs whose machines are not in the backup, and deletes their Nodes:
// docs/limits.md requires that, since a new machine can get the name of a forgotten one.
func (t *trial) endForgottenVMs() {
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			stored := t.control.Get("machines", v.Namespace, v.Machine)
			if v.MachineUID != "" && v.ControlCluster != anotherCluster && v.Live() && (stored == nil || stored.GetUID() != v.MachineUID) {
				t.logf("an operator deletes VM %s, whose machine %s is not in the backup", v.ID, v.Machine)
				v.Ends = time.Now()
				t.target.Remove("nodes", "", v.NodeName)
			}
		}
	})
}

// applyRoots applies all MachineDeployments anew, and deletes those that were deleted since the
// backup.
func (t *trial) applyRoots() {
	for _, o := range t.control.List("machinedeployments") {
		if t.roots[o.GetNamespace()+"/"+o.GetName()] == nil {
			t.control.Delete("machinedeployments", o.GetNamespace(), o.GetName())
		}
	}
	for _, r := range t.sortedRoots() {
		stored := t.control.Get("machinedeployments", r.namespace, r.name)
		t.putRoot(r.namespace, r.name, r.replicas).away = stored != nil && stored.GetDeletionTimestamp() != nil
		if r.version != "" {
			t.control.Edit("machinedeployments", r.namespace, r.name, r.setVersion) // which the backup may not have
		}
	}
	t.deleteLeftSets()
}

// deleteLostMachines deletes the machines whose VM has ended since the backup: docs/limits.md
// requires that, since the fleet cannot distinguish them from restored machines.
func (t *trial) deleteLostMachines() {
	live := map[string]bool{}
	for _, v := range t.cloud.Live() {
		live[string(v.MachineUID)] = true
	}
	for _, o := range t.control.List("machines") {
		providerID := providerIDOf(o)
		if providerID != "" && !live[string(o.GetUID())] && o.GetDeletionTimestamp() == nil {
			t.logf("a user deletes machine %s, whose VM has ended", o.GetName())
			t.control.Delete("machines", o.GetNamespace(), o.GetName())
		}
	}
}

// correctNodes has kubelets register Nodes that are not in the backup, and deletes Nodes whose VM
// has ended since, as a cloud controller manager does.
func (t *trial) correctNodes() {
	live := map[string]bool{}
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			live[v.NodeName] = live[v.NodeName] || v.Live()
			if v.Live() && v.Joined && t.target.Get("nodes", "", v.NodeName) == nil {
				v.Joined, v.Boots = false, time.Now().Add(bootTime)
			}
		}
	})
	for _, o := range t.target.List("nodes") {
		if !live[o.GetName()] {
			t.target.Delete("nodes", "", o.GetName())
		}
	}
}

// sortedRoots returns the roots by namespace and name.
func (t *trial) sortedRoots() []*root {
	all := make([]*root, 0, len(t.roots))
	for _, r := range t.roots {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *root) int { return strings.Compare(a.key(), b.key()) })
	return all
}
