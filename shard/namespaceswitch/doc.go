// Package namespaceswitch lets the Deployment machine-controller-manager of each namespace switch
// the fleet on and off there, and reports on its pods whether the fleet serves the namespace.
// shard/namespaceswitch/policy decides both.
//
// Every replica watches the Deployments, whichever slots it holds: it knows the switch of a
// namespace before it is given work there. The pods are reported on by the holder of the slot of
// the namespace's name, and by the leader while that slot has no holder.
//
// Guarantees: no pass is admitted by a Gate in a namespace that is off, or whose switch is not
// known; the contexts of passes there end when it is switched off, so that no further request and
// no call of a driver begins; keys that were refused or interrupted are enqueued when it is
// switched on. Not guaranteed: what the API server or the cloud does with a request that was sent
// before.
package namespaceswitch
