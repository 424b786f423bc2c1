// Package requests bounds the requests to the API servers of target clusters, as budget decides, so
// that a server that is dead, slow or overloaded takes no more workers and no more time than its
// share.
//
// Namespaces whose Secrets name the same server, verified with the same CA, share a budget. The UID
// of the cluster does not decide that: its administrators choose what it answers, and could use up
// the budget of another cluster. Who shares a budget can use it up for the others; failures count
// for the namespace alone whose requests have failed.
//
// Guarantees: a request is sent at once or refused at once, with a RefusedError, which makes a pass
// wait without a worker. Nothing is sent again, and no answer is awaited for longer than Timeout;
// of a watch, its beginning.
package requests
