// Package merge decides what the Nodes of a MachineConfigPool are configured with: it selects
// MachineConfigs, merges them, validates the result, names it by its content, and decides which
// results nothing needs any more. It is pure.
//
//   - Select and Affected: which MachineConfigs belong to a pool, as Deployments select pods; which
//     pools a change concerns.
//   - Merge: in the order of the names, the first is the base, each later one is merged over it by
//     Ignition's own library.
//   - Due, Prepare and Decide: the next step of a pool: wait, create a RenderedMachineConfig, move
//     the target, or report what is wrong, and with which MachineConfig.
//   - Garbage: which RenderedMachineConfigs can be deleted, and which of those that are being
//     deleted can be released.
//
// Guarantees: equal inputs have equal results, regardless of the order in which they are passed;
// equal contents have equal names; Merge and Decide return for every input, and no message contains
// the content of a file. A change that Nodes cannot apply in place is refused before a Node is
// assigned it.
//
// Not guaranteed: that a configuration works. Contents of files are not read.
package merge
