// Package validation reports what is wrong with an object that the API server has accepted. It is
// pure.
//
// The CustomResourceDefinitions reject most of it, but not all: MCM's own definitions check
// nothing, an object may be older than a rule, and some rules cannot be written in a definition.
// What is found here keeps a controller from acting on the object, and is reported in its Valid
// condition (a MachineDeployment, a MachineSet) or its lastOperation (a Machine).
//
// All functions are pure, total and deterministic: any value that decodes from JSON gets an answer,
// the same each time. They report what MCM reports, so that every object that MCM acts on is acted
// on here, except for numbers of machines that no cluster has (MaxReplicas). They do not look at
// other objects: the controllers check whether a class or a Secret exists.
package validation
