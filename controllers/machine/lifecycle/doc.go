// Package lifecycle decides what happens to one machine next. It is pure: Decide is a function from
// what was observed (a World) to what to do (a Verdict), with the time as a value, and it knows
// neither a cluster nor a cloud.
//
// One pass of the machine controller is a loop: Decide names one Action, the controller carries it
// out, records the result in the World, and calls Decide again, until the Action is Rest. Steps
// that can follow each other at once do so in one pass; a step that has to wait for something ends
// the pass, and the event of that something, or Verdict.Wake, starts the next one.
//
// Guarantees, each of them tested with generated worlds:
//
//   - Nothing is created before the machine carries our finalizer, its class and secrets have it,
//     too, and the cloud has reported that there is no VM yet, or that only a create can show it.
//   - A cloud that has failed is asked again at the time that is stored on the machine, by
//     whichever replica processes it then.
//   - "The cloud did not answer" is never taken for "there is no VM", and a Node that a cache does
//     not show is looked up before anything follows from its absence.
//   - A VM is deleted only after the drain of its Node has ended, or when there is no Node.
//   - A Node is reported as ready for its in-place update only when it is drained and the phase of
//     the machine is InPlaceUpdating.
//   - The finalizer is removed last: after the VM, and after its Node.
//   - Decide ends: it never names the same action twice in a row for the same facts.
//   - The verdict on the same facts is the same in every process, so a pass can be interrupted
//     anywhere and begun again.
package lifecycle
