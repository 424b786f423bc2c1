// Package render is the RenderController: it renders the MachineConfigs of each MachineConfigPool
// of this replica into a RenderedMachineConfig, makes that the target of the pool, and deletes
// RenderedMachineConfigs that nothing names. It acts on what package merge decides.
//
// Guarantees:
//
//   - A RenderedMachineConfig exists, and the pool has the finalizer, before the status of the pool
//     names it. An interrupted pass is continued by the next one, which finds the object by its
//     name.
//   - Nothing is deleted, and no finalizer removed, that a list of the API server after the
//     decision to look names: of all pools, Nodes, Machines and templates of machines. What is
//     being deleted is checked again before it is released.
//   - A pool, or a RenderedMachineConfig, that is being deleted and is named waits for changes in
//     the caches of this replica that may end that, and is looked at again after releaseEvery
//     without one.
//   - A paused pool is not rendered. Changes that belong together are rendered once: render.Settle
//     after the last of them.
//
// Bodies of RenderedMachineConfigs are read when they are needed, and not cached.
//
// Not guaranteed: that RenderedMachineConfigs of a pool that was deleted without its finalizer are
// deleted before there is a pool of that name.
package render
