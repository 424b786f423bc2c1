// Package kubeclient has client-go's clients of those groups of Kubernetes that the fleet uses. A
// kubernetes.Clientset links those of all groups, which would be a tenth of the program.
//
// Guarantees: the clients of one Interface share their connections and their limit of requests, as
// those of a kubernetes.Clientset do, which is an Interface, too.
package kubeclient
