// Package smoke tries the lab as a whole, with the binaries of bin/: that it comes up, is what it says it is, boots a
// machine with a real kubelet, and that nothing is left of it in the end, whatever happens meanwhile. Its tests have the
// build tag e2e.
package smoke
