package replica

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// linkControllers connects the controllers with each other and with the caches: which function is
// called when another part changes something. Where a controller needs an answer of another one it
// has that function in its Config (controllers.go): what a set would record next, why a class
// cannot be used, the drains of Nodes. Errors: a watch has begun.
func linkControllers(d *deps, c *controllers) error {
	// More, or fewer, objects to work on.
	d.slots.opened = append(d.slots.opened, c.classCache.Opened, c.classes.Opened)
	d.slots.namespaces.OnChange(c.classCache.NamespaceChanged)
	d.slots.namespaces.OnChange(func(string) { c.classes.Opened() })
	if c.orphans != nil {
		c.classCache.OnSweepRequest(c.orphans.Requested)
	}
	// An API server is away, or back.
	serverChanged := func(of *target.Cluster) {
		c.serverChanged(of)
		d.configs.serverChanged(of)
	}
	d.controlServer.OnChange(func() { serverChanged(nil) })
	if d.targetServer != nil {
		d.targetServer.OnChange(func() { serverChanged(d.cluster) })
	}
	// The target cluster of a namespace is available, or not any more.
	if d.byNamespace != nil {
		d.linkTargets()
		d.byNamespace.OnChange(c.machines.TargetChanged)
		d.byNamespace.OnChange(c.deployments.TargetChanged)
		d.byNamespace.OnChange(c.sets.TargetChanged)
		d.byNamespace.OnChange(c.remediation.TargetChanged)
		if c.unmanaged != nil {
			d.byNamespace.OnChange(c.unmanaged.TargetChanged)
		}
		d.byNamespace.OnServerChange(serverChanged)
	}
	// A namespace is switched on, or off.
	d.slots.switches.OnChange(c.classCache.NamespaceChanged)
	d.slots.switches.OnChange(func(string) { c.classes.Opened() })
	d.linkSwitches()
	// Deletions are held, or not any more.
	d.holds.OnChange(c.sets.HoldChanged)
	d.holds.OnChange(c.remediation.HoldChanged)
	if d.configs != nil {
		linkMachineConfiguration(d)
	}
	// A Node appears that may be a machine's.
	if d.cluster != nil {
		return d.slots.onUnlabeledNode(func(name string, uid types.UID) { c.machines.NodeAppeared(d.cluster, name, uid) })
	}
	return nil
}

// serverChanged gives machines, roots and Nodes a pass when an API server that they depend on is
// away, and when it is back; nil means that of the control cluster.
func (c *controllers) serverChanged(of *target.Cluster) {
	c.machines.ServerChanged(of)
	c.remediation.ServerChanged(of)
}
