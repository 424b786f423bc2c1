// Package light serves light clusters: API servers in memory, hundreds of them in one process.
//
// A light cluster has its own address, CA and credentials, and the semantics of package
// apiserver. It authenticates client certificates of its CA, bootstrap tokens by their Secrets, and
// tokens of service accounts, which end with the Secret that they are bound to. It implements
// evictions with their check of disruption budgets, and enough of discovery for kubectl. Watches
// may begin at revisions of the last 5 min; the answer to earlier ones is 410.
//
// Guarantees: a cluster that is started again is another one: nothing is kept, and its Namespace
// kube-system has another UID.
//
// Not guaranteed: there is no scheduler, and the only controller removes Leases and pods of Nodes
// that do not exist, within a minute. No Node becomes unreachable by itself, pods have to name
// their Node, and the status of a disruption budget is what a client wrote. There are no roles: a
// user with access may do everything, except that the bearer of a bootstrap token may only ask who
// it is. There is no admission and no validation by schemas.
package light
