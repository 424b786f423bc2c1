// Package cloudsim is a simulated cloud: VMs, volumes and a catalog behind an HTTP API (driver/simulated/cloudapi), with
// latency, quotas and faults that can be set while it runs.
//
// What holds:
//
//   - State is on disk before a call is answered. Killing the cloud at any moment loses nothing that took effect, and
//     starting it again goes on with every VM where it was.
//   - A call takes effect when it is accepted, and is answered after its latency. It takes effect also when the caller
//     has gone away, as at real clouds.
//   - A create with a client token that is known makes nothing: it returns the token's VM, in whatever state that is, or
//     refuses when the parameters differ.
//   - Every call is in the call log, written before its answer. Calls that a killed cloud could not answer are logged when
//     it starts again, if they took effect.
//   - It is honest: it refuses what a cloud would refuse, and nothing else. Callers' names mean nothing to it.
//
// What does not: the state does not survive a power cut, and no order of calls that are made at the same time is
// promised. Chance comes from a seed, yet which call meets which fault depends on the order in which calls arrive.
//
// Whoever runs the cloud makes it fail through its settings, a JSON merge patch away, and VMs by actions:
//
//	curl -X PATCH $CLOUD/admin/v1/settings -d '{"faults": [{"kind": "throttled", "rate": 0.5, "retryAfter": "2s"}]}'
//	curl -X PATCH $CLOUD/admin/v1/settings -d '{"failedZones": ["sim-1b"], "vmFaults": {"neverJoin": 0.1}}'
//	curl -X POST $CLOUD/admin/v1/instances/$ID/actions -d '{"action": "die"}'
//
// What runs inside the VMs is not decided here: see guest, and its hosts simkubelet and realkubelet.
package cloudsim
