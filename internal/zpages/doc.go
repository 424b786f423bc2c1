// Package zpages serves what a process reports about itself as plain text, in the form of
// Kubernetes' components: health as named checks (livez, readyz), its build and state (statusz) and
// its flags (flagz).
//
// Guarantees: a page has no other content than what its caller passes, and each value is one line
// of printable characters.
//
// Not guaranteed: a format that programs can parse, except for the status of health. The packages
// of k8s.io/apiserver that serve such pages are not used: they would bring the whole library of API
// servers.
package zpages
