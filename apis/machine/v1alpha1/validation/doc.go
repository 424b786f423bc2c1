// Package validation says what is wrong with an object that the API server has accepted.
//
// The CustomResourceDefinitions refuse most of it, but not all: MCM's own definitions check nothing, an object may be
// older than a rule, and some rules cannot be written in a definition. What is found here keeps a controller from acting
// on the object, and goes into its Valid condition (a MachineDeployment, a MachineSet) or its lastOperation (a Machine).
//
// All functions are pure, total and deterministic: any value that decodes from JSON gets an answer, the same each time.
// They find what MCM finds, so that whatever MCM acts on is acted on here, but for numbers of machines that no cluster has
// (MaxReplicas). They do not look at other objects: whether a
// class or a Secret exists is for the controllers to see.
package validation
