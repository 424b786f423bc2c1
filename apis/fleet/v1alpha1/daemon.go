package v1alpha1

import "strings"

// DaemonPrefix is the default prefix of the annotations through which controllers and daemon work
// together on a Node.
const DaemonPrefix AnnotationPrefix = "machine-config-daemon.v1.openshift.com"

// AnnotationPrefix is the part before the slash of the names of these annotations. Each has one
// writer.
type AnnotationPrefix string

// CurrentConfig is the name of the RenderedMachineConfig that the Node has.
//
// On: Nodes. By: daemon. Value: name of a RenderedMachineConfig. See:
// operations/machine-config-daemon.md#follow-the-node.
func (p AnnotationPrefix) CurrentConfig() string { return string(p) + "/currentConfig" }

// DesiredConfig is the name of the RenderedMachineConfig that the Node must get.
//
// On: Nodes. By: fleet. Value: name of a RenderedMachineConfig. See:
// operations/machine-config-daemon.md#follow-the-node.
func (p AnnotationPrefix) DesiredConfig() string { return string(p) + "/desiredConfig" }

// State is the state of the Node as its daemon reports it, a NodeState.
//
// On: Nodes. By: daemon. Value: `done`, `working`, `degraded`, `unreconcilable`. See:
// operations/machine-config-daemon.md#follow-the-node.
func (p AnnotationPrefix) State() string { return string(p) + "/state" }

// Reason explains the state, for people: at most 2,000
// characters.
//
// On: Nodes. By: daemon. Value: text. See: operations/machine-config.md#a-node-is-degraded.
func (p AnnotationPrefix) Reason() string { return string(p) + "/reason" }

// DesiredDrain is the request of a daemon for a configuration: a drain, or
// the end of its cordon.
//
// On: Nodes. By: daemon. Value: `drain-<config>`, `uncordon-<config>`. See:
// operations/machine-config.md#drain.
func (p AnnotationPrefix) DesiredDrain() string { return string(p) + "/desiredDrain" }

// LastAppliedDrain is the last value of DesiredDrain whose work is done.
//
// On: Nodes. By: fleet. Value: as of the request. See: operations/machine-config.md#drain.
func (p AnnotationPrefix) LastAppliedDrain() string { return string(p) + "/lastAppliedDrain" }

// IsNodeAnnotationOfDaemons reports whether controllers of machine configuration or daemons write
// the annotation on Nodes. The prefix is a setting of theirs, so names that no other client uses
// count with any prefix.
func IsNodeAnnotationOfDaemons(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	switch p := AnnotationPrefix(prefix); key {
	case p.CurrentConfig(), p.DesiredConfig(), p.DesiredDrain(), p.LastAppliedDrain():
		return true
	default:
		return p == DaemonPrefix
	}
}

// DrainFor is the value of DesiredDrain that requests a drain before an update to a
// RenderedMachineConfig.
func DrainFor(config string) string { return "drain-" + config }

// UncordonFor is the value of DesiredDrain that requests the end of the cordon after an update to a
// RenderedMachineConfig.
func UncordonFor(config string) string { return "uncordon-" + config }

// NodeState is the state of a Node as its daemon reports it.
type NodeState string

// States of a Node.
const (
	// StateNone means that no daemon has reported a state, or one that is unknown.
	StateNone NodeState = ""
	// StateDone means that the Node has its current configuration, completely.
	StateDone NodeState = "done"
	// StateWorking means that the daemon is applying the desired configuration.
	StateWorking NodeState = "working"
	// StateDegraded means that the daemon could not apply the desired configuration, or that files
	// have changed since.
	StateDegraded NodeState = "degraded"
	// StateUnreconcilable means that the desired configuration differs from the current one in a part
	// that cannot be changed in place.
	StateUnreconcilable NodeState = "unreconcilable"
)

// ParseNodeState returns the state that the value of an annotation means, without regard for case.
// An unknown value is StateNone.
func ParseNodeState(value string) NodeState {
	switch state := NodeState(strings.ToLower(value)); state {
	case StateDone, StateWorking, StateDegraded, StateUnreconcilable:
		return state
	case StateNone:
	}
	return StateNone
}
