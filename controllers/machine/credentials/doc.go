// Package credentials reads and writes the Secrets that a VM is created with: in the control
// cluster those of its class, with the credentials for the cloud and the user data, and in the
// target cluster the bootstrap token of its machine.
//
// Secrets reads the Secrets of classes, remembers them for some seconds, adds finalizers to them,
// and wakes machines that wait for one. Tokens creates, prolongs, finds and deletes bootstrap
// tokens, also those of machines that do not exist any more. Neither decides when: the machine
// controller calls them for what lifecycle has decided.
//
// Guarantees: a class uses a Secret of another namespace only if that Secret is shared with the
// namespace of the class, and a client that may write classes cannot learn by time or texts whether
// such a Secret exists; a namespace cannot cause the Secrets of one with fewer bytes to be dropped
// from memory; a machine has one token, which any process finds by the machine's UID; a token of
// another machine is neither changed nor deleted; what is remembered may be lost at any time, which
// costs requests. Not guaranteed: that a Secret is as the API server has it now, for secretTTL;
// that the token of a machine that vanishes while no process watches it is deleted. It expires.
package credentials
