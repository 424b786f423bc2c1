// Package cloudsim is a simulated cloud: VMs, volumes and a catalog behind an HTTP API
// (e2e/simulated/cloudapi), with latency, quotas and faults that can be set while it runs.
//
// Guarantees:
//
//   - State is on disk before a call is answered. Killing the cloud at any moment loses nothing
//     that took effect, and after a restart every VM continues in its last state.
//   - A call takes effect when it is accepted, and is answered after its latency. It takes effect
//     also when the caller has disconnected, as at real clouds.
//   - A create with a known client token creates nothing: it returns the token's VM, in any state,
//     or is rejected when the parameters differ.
//   - Every call is in the call log, written before its answer. Calls that a killed cloud could not
//     answer are logged when it starts again, if they took effect.
//   - It rejects what a real cloud would reject, and nothing else. It does not depend on who the
//     caller is.
//
// Not guaranteed: that the state survives a power cut, or an order of concurrent calls. Random
// decisions follow from a seed, yet which call gets which fault depends on the order in which calls
// arrive.
//
// The operator of the cloud makes it fail by a JSON merge patch of its settings, and VMs by
// actions:
//
//	curl -X PATCH $CLOUD/admin/v1/settings -d '{"faults": [{"kind": "throttled", "rate": 0.5, "retryAfter": "2s"}]}'
//	curl -X PATCH $CLOUD/admin/v1/settings -d '{"failedZones": ["sim-1b"], "vmFaults": {"neverJoin": 0.1}}'
//	curl -X POST $CLOUD/admin/v1/instances/$ID/actions -d '{"action": "die"}'
//
// The software inside the VMs is not part of this package: see guest, and its hosts simkubelet and
// realkubelet.
package cloudsim
