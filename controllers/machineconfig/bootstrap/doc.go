// Package bootstrap provides what new machines boot with: the values of the placeholders of machine configuration in user data. Package
// stamp decides which configuration that is.
//
// Guarantees: the content is that which the name stands for, and belongs to the pool that refers to the machine's root. Contents are
// remembered, because the machines of a MachineSet are created together; the name decides the content, so what is remembered is never old.
// One that is too large for any user data is not remembered.
package bootstrap
