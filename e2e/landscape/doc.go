// Command landscape measures a fleet that serves many target clusters: what its replicas use at
// rest and while all clusters roll, how long a change takes while the fleet is scaled, while one
// target cluster hangs or throttles, and while all credentials are rotated. It prints tables in
// Markdown. See docs/lab.md for which clusters are real and which are light.
package main
