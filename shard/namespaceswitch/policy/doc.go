// Package policy decides whether a namespace is switched on, and what the pods of its switch show.
// It is pure.
//
// The switch of a namespace is a Deployment: the one that Gardener has there for Machine Controller
// Manager. In a fleet its pods are stand-ins, which no scheduler binds to a Node and no kubelet
// runs, because they have a scheduling gate; their status is what the fleet reports.
//
// Guarantees: a namespace without the Deployment is off; a pod that is not a stand-in is never
// reported on; a status that shows what it should is not written again.
package policy
