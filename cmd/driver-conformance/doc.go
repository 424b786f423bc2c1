// Command driver-conformance runs the conformance suite of package drivertest against a driver in a
// separate process, on a cloud that the author of the driver can empty.
//
//	driver-conformance --socket=/run/azure.sock --class=class.yaml --secret=secret.yaml --vms='./list-vms.sh'
//
// The command of --vms prints what really exists, without the driver: a line for each VM, with its
// provider ID and the UID of its Machine. What the suite creates has names that begin with
// conformance-, in its own namespaces, and is deleted through the driver after each case.
//
// Faults of a cloud cannot be injected from outside: the cases that need them are skipped, and name
// what they need. A test in Go that calls drivertest.Run has all of them.
package main
