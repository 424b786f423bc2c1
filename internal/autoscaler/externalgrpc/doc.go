// Package externalgrpc is the protocol of the cluster-autoscaler's provider of the same name: what
// hack/generate.sh generates from externalgrpc.proto.
//
// Guarantee: names and numbers of services, methods and fields are the cluster-autoscaler's, those
// of older releases included. Not guaranteed: fields of releases that are newer than the file. They
// are kept as unknown fields where a message is sent back.
package externalgrpc
