// Package etcdsnapshot saves what an etcd of one member holds to a file, and makes the data folder of an etcd from such a
// file.
//
// A restored etcd has its revisions of then. What had been written later is unmade, and its revisions are given out
// again: watches that saw them miss what is new. Backup tools therefore raise the revision when they restore for a
// Kubernetes; here whoever restores decides.
package etcdsnapshot
