// Package etcdsnapshot saves the content of an etcd of one member to a file, and creates the data
// folder of an etcd from such a file.
//
// A restored etcd has its revisions of then. Later writes are lost, and their revisions are used
// again: watches that have seen them miss new changes. Backup tools therefore raise the revision
// when they restore for a Kubernetes; here the caller decides.
package etcdsnapshot
