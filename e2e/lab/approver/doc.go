// Package approver approves the certificate requests with which VMs join the target cluster, and is
// an example of what an approver has to check: the user data of a VM contain its bootstrap token,
// and with a certificate for any Node name a client can read the Secrets of all pods.
//
// Guarantees: a bootstrap token gets a certificate for one Node name: the one that the cloud has
// given to the VM of the machine which the token was created for, while that machine exists and has
// not joined, and while no other machine has the Node or names it. All other requests are denied;
// those of a machine whose VM is not recorded yet, or whose Node another Machine names, wait.
// Requests of other signers, those with tokens of no machine, and those of Nodes for their next
// certificate are ignored: Kubernetes approves the latter.
//
// Not guaranteed: that the request comes from the VM itself. Another client with the token can be
// faster; the VM then cannot join, and the machine fails. Nor that a machine joins: a client that
// may write Machines and knows the Node's name can name it in its own Machine, and then none
// of the two gets a certificate.
package approver
