// Package smoke tests the lab as a whole, with the binaries of bin/: that it starts, matches its
// description, boots a machine with a real kubelet, and that nothing is left of it in the end, also
// after faults. Its tests have the build tag e2e.
package smoke
