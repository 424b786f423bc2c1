// Package serving serves metrics, health, status and debug pages of a process over HTTP or HTTPS,
// and listens for clients of another protocol that authenticate with certificates (ListenMutual).
//
// Guarantees:
//
//   - Health is served to all. Metrics and debug pages are served to those whom the control
//     cluster's RBAC lets read them, or, without authorization, metrics to all and debug pages on
//     loopback addresses.
//   - Connections, headers, times and reviews are bounded, also by address: a client that takes all
//     that it can get delays no probe.
//   - A certificate is read again when it changes. While the new one cannot be read, the previous
//     one is served.
//
// Not guaranteed: that a reader who loses its access is refused at once. An answer of the API
// server is valid for a minute, and for ten while it does not answer; not for longer because too
// many reviews were requested.
package serving
