// Package scale shows that a fleet follows its load: with the HorizontalPodAutoscaler controller of kube-controller-manager, a
// real Prometheus, an adapter for external metrics behind the API server's aggregator, and the StatefulSet and the autoscaler of
// the chart.
//
// In a lab no kubelet runs the pods of the StatefulSet: they stay Pending, and a bridge starts and ends the lab's replicas so
// that there are as many as pods. Everything else is as in a cluster.
//
// Run it with `make scale-e2e`; it writes what it has seen to bin/scaling.csv and bin/scaling.svg.
package scale
