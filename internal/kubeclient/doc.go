// Package kubeclient has client-go's clients of those groups of Kubernetes that the fleet uses. A
// kubernetes.Clientset links the clients of all groups, whose code a replica would have in memory.
//
// Guarantees: the clients of one Interface share their connections and their limit of requests, as
// those of a kubernetes.Clientset do, which is an Interface, too.
package kubeclient
