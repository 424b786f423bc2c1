// Package generated writes the MachineConfigs that controllers generate, and keeps them as they were generated.
//
// Labels, annotations and owner references of a generated MachineConfig are added to those that it has; its spec is replaced. So is that of
// an object which another client has created with the same name: the names of generated MachineConfigs are reserved.
package generated
