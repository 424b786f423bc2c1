// Package scale shows that a fleet follows its load: with the HorizontalPodAutoscaler controller of
// kube-controller-manager, a real Prometheus, an adapter for external metrics behind the API
// server's aggregator, and a fleet that Helm installs with the chart and real kubelets run, with
// the chart's StatefulSet and autoscaler.
//
// Prometheus and the adapter are processes and not pods, and the test writes the addresses of the
// pods for Prometheus. Everything else is as in a cluster.
//
// Run it as root with `make scale-e2e`; it writes what it has seen to bin/scaling.csv and
// bin/scaling.svg.
package scale
