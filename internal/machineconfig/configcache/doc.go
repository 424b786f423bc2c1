// Package configcache has what the controllers of machine configuration share: what this process
// knows of its kinds, and how MachineConfigs are generated.
//
// A Cache is the cache of the kinds of machine configuration in one process, for all controllers of
// them.
//
// Pools, KubeletConfigs and the ControllerConfig are few and small: every replica watches all of
// them, because which Node and which KubeletConfig belongs to a pool depends on all pools.
// MachineConfigs and the metadata of RenderedMachineConfigs are watched while the replica owns an
// object that they are needed for. Bodies of RenderedMachineConfigs, up to 1.5 MiB each, are never
// cached.
//
// Guarantees:
//
//   - While Ready, every reader returns what was listed, and what the watches have delivered since.
//   - Handlers are called one after the other for each kind, and not before Ready for
//     MachineConfigs and RenderedMachineConfigs. When the replica has become ready, and each time
//     that Look was called since, they are called with each pool, KubeletConfig and
//     ControllerConfig as with a new one: a controller that enqueues from a handler misses nothing.
//
// Not guaranteed: that the cache is current. Decisions that must not be taken twice read the API
// server.
//
// A Writer writes the MachineConfigs that controllers generate, and keeps them as they were
// generated.
//
// Labels, annotations and owner references of a generated MachineConfig are added to those that it
// has; its spec is replaced. So is that of an object which another client has created with the same
// name: the names of generated MachineConfigs are reserved.
package configcache
