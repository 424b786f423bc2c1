// Package bridged tries the driver of Azure of Machine Controller Manager (MCM), as the program
// driver/bridge/azure serves it, on the small Azure of package azuretest: the conformance suite,
// what that driver cannot do and why, and a fleet in the lab.
//
// The program is the one that users run. It is a separate process, which finds the cloud by an HTTP
// proxy; so MCM's driver keeps the versions of its libraries, which are not those of the driver of
// this module. After a change of the bridge, run the tests with -count=1.
package bridged
