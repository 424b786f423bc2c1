// Package configs computes what a change of a MachineConfig or a KubeletConfig would do to Nodes
// before it is applied. It sends no request.
//
// The configurations of pools are those that fold and merge render of the changed objects. What a
// Node does with another configuration is what the daemon computes from the two trees and from the
// rules of the pool. Which Nodes get it when is decided by candidates in a simulation, and where
// the strategy of a MachineDeployment brings it to machines, package plan simulates that.
//
// Guarantees: those of package plan. Not guaranteed: what a Node has in addition to its
// configuration, such as files that it has changed and hooks of its daemon; users other than root
// and core are not known.
package configs
