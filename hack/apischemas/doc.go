// Command apischemas writes JSON schemas of the kinds in the chart, from the OpenAPI documents of a
// version of Kubernetes, for hack/chart-lint.sh. The documents of one version have 11 MB and come
// with the source of Kubernetes; of them 300 kB are needed.
//
// The schemas are strict: an object with a field that the API does not have is invalid. Beyond
// types, required fields and enums nothing is checked: an API server in the lab does that, of the
// newest of these versions.
package main
