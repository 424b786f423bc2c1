// Package secretwatch watches the Secrets that other objects wait for: machines, and the
// ControllerConfig.
//
// Each Secret has its own watch, by name, while an object waits for it. It sends no list request,
// and so needs no permission to list. Of a Secret only a checksum of its data is stored.
//
// The number of watched Secrets of a namespace is bounded, however many the objects name. For a
// Secret beyond that bound, Await returns the time after which the Secret has to be read again.
//
// Guarantees: an object that waits for a watched Secret is woken when the data differs, or may
// differ, from the data that was read for it, also if it changed before the object began to wait;
// other changes wake nothing; a Secret is watched only while an object waits for it. Not
// guaranteed: that the deletion of a Secret while its watch is interrupted is noticed before the
// Secret is read. While a Secret cannot be watched, the objects that wait for it are woken
// periodically instead.
package secretwatch
