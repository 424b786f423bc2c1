// Package aws is the driver of Amazon EC2. It reads the provider specs and Secrets of Machine
// Controller Manager's driver for AWS as they are, see ProviderSpec and the constants Secret….
//
// How machines and VMs belong together:
//
//   - The Machine's UID is the client token of RunInstances, and a tag of the instance in the same
//     request. EC2 answers a create that is repeated under one token with the instance of the first
//     one. It keeps a token for at least 24 h, so a create for a Machine that is older than half of
//     that looks for the tag first.
//   - The tags of the Machine and of the control cluster are on the volumes and the network
//     interfaces, too, because TagSpecifications is part of the request that creates them. Those
//     that the provider spec keeps when their instance ends do not have these tags: they are no
//     left-overs, and are not the fleet's to delete.
//   - A Machine gets one VM in its life: the token of an instance that has ended leads to no other
//     one, and the create is Aborted.
//   - An instance without the tag of the UID is not the Machine's, regardless of the Machine's
//     provider ID. With Target.Adopt also instances without a UID that have the tag Name with the
//     Machine's name, and the cluster's and the role's tags of the class.
//   - EC2 cannot check tags in the request that deletes. The driver reads them immediately before.
//     EC2 never uses an ID again.
//
// EC2 is eventually consistent: for some time after RunInstances, DescribeInstances does not show
// the instance. Within settleTime after a create "there is none" is therefore no proof: a delete is
// not Gone, and the VM that the provider ID names is not NotFound. The time of the create is
// recorded in LastKnownState. A look by UID may be NotFound: the create that follows has the same
// token.
//
// The name of the Node is the private DNS name of the instance. The provider ID is
// aws:///<region>/<instance>, as in Machine Controller Manager, which deletes a VM as an orphan
// whose provider ID is not equal to that of its Machine. The cloud controller manager for AWS has
// the zone in the place of the region on the Node; package nodeowner accepts that as the ID of the
// same VM, and the driver reads both.
//
// Each method sends a bounded number of requests and repeats none: the fleet calls again.
package aws
