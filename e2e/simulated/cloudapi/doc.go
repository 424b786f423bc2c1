// Package cloudapi is the wire format of the simulated cloud: the JSON bodies, paths and error
// codes that its server (e2e/lab/cloudsim) and its clients (e2e/simulated, the tests) share. It has
// types and constants only.
package cloudapi
