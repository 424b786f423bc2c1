// Package lifecycle decides what machine-config-daemon does next and what it reports about its
// Node. It is pure: what is known comes in as a World, with the time, and a Verdict comes out.
//
//	report            when
//	done              the desired configuration is applied, proven and verified, and the Node is not cordoned for it any more
//	working           it is being applied: read, drained for, written, rebooted into, verified
//	degraded          it could not be applied, or files differ from it; it is tried again, and the report stays until a success
//	unreconcilable    it differs in a field that cannot be changed in place; nothing was written, and no drain requested
//
// The Node is drained before the first write, and only for a reboot. A configuration that was
// undone twice is not tried again until another one is desired: each attempt is a reboot.
package lifecycle
