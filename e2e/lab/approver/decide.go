package approver

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	bootstrapUser = "system:bootstrap:"
	nodeUser      = "system:node:"
	nodesGroup    = "system:nodes"
)

// facts are the input of a decision about a request. Token, machine and Node are nil if they do not
// exist.
type facts struct {
	now     time.Time
	request *certificatesv1.CertificateSigningRequest
	token   *corev1.Secret
	machine *v1alpha1.Machine
	node    *corev1.Node
	// others are all Machines whose label names the Node of the machine. The machine itself may be one
	// of them.
	others []v1alpha1.Machine
}

// joining are the phases of machines that have not joined. Only these have a bootstrap token.
var joining = []v1alpha1.MachinePhase{"", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff}

// verdict is a decision about a request.
type verdict int

const (
	wait verdict = iota // it may be approved later
	approve
	deny
)

// tokenOf returns the name of the Secret with the bootstrap token with which a request was sent; ok
// is false for a request for another approver.
func tokenOf(r *certificatesv1.CertificateSigningRequest) (name string, ok bool) {
	id, isBootstrap := strings.CutPrefix(r.Spec.Username, bootstrapUser)
	return "bootstrap-token-" + id, isBootstrap && len(r.Status.Conditions) == 0 &&
		r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName
}

// machineOf returns the machine that a bootstrap token was created for.
func machineOf(token *corev1.Secret) (namespace, name string) {
	namespace, name, _ = strings.Cut(token.Annotations[v1alpha1.AnnotationTokenOf], "/")
	return namespace, name
}

// nodeOf returns the Node for which a certificate is requested. Errors: it is not for a Node, or
// not only for that.
func nodeOf(r *certificatesv1.CertificateSigningRequest) (string, error) {
	block, rest := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return "", errors.New("expected one certificate request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read the certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return "", fmt.Errorf("check the signature of the certificate request: %w", err)
	}
	name, isNode := strings.CutPrefix(request.Subject.CommonName, nodeUser)
	if !isNode || name == "" || !slices.Equal(request.Subject.Organization, []string{nodesGroup}) {
		return "", fmt.Errorf("expected user %s<Node> in group %s alone, got %q in %q",
			nodeUser, nodesGroup, request.Subject.CommonName, request.Subject.Organization)
	}
	if len(request.DNSNames)+len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0 {
		return "", errors.New("expected no alternative names, got some")
	}
	usages := []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth,
	}
	if slices.ContainsFunc(r.Spec.Usages, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(usages, u) }) {
		return "", fmt.Errorf("expected no usages but %q, got %q", usages, r.Spec.Usages)
	}
	return name, nil
}

// decide decides about a request of a bootstrap token, and returns the reason.
func decide(f facts) (verdict, string) {
	if f.token == nil || f.token.Type != corev1.SecretTypeBootstrapToken || f.token.Annotations[v1alpha1.AnnotationMachineUID] == "" {
		return wait, "the bootstrap token belongs to no machine; another approver decides"
	}
	node, err := nodeOf(f.request)
	if err != nil {
		return deny, err.Error()
	}
	if expiry, err := time.Parse(time.RFC3339, string(f.token.Data["expiration"])); err != nil || !f.now.Before(expiry) {
		return deny, "the bootstrap token has expired"
	}
	if f.machine == nil || string(f.machine.UID) != f.token.Annotations[v1alpha1.AnnotationMachineUID] || f.machine.DeletionTimestamp != nil {
		return deny, "the machine of the bootstrap token does not exist any more, or is being deleted"
	}
	// The fleet deletes the token of a machine before it records that the machine has joined: another
	// client has created this one.
	if phase := f.machine.Status.CurrentStatus.Phase; !slices.Contains(joining, phase) {
		return deny, fmt.Sprintf("the machine is %s, and has no bootstrap token any more", phase)
	}
	switch recorded := f.machine.Labels[v1alpha1.LabelNode]; {
	case recorded == "":
		return wait, "the VM of the machine is not recorded yet"
	case recorded != node:
		return deny, fmt.Sprintf("the bootstrap token is for Node %q, and the request for Node %q", recorded, node)
	}
	// The label is written by any client that may write Machines, and the age of a Machine does not
	// show which of two Machines has the VM: neither gets the certificate, with which it could later
	// be the Node of the other one.
	for i := range f.others {
		if other := &f.others[i]; other.UID != f.machine.UID {
			return wait, fmt.Sprintf("Machine %s names Node %q, too", v1alpha1.RefOf(other), node)
		}
	}
	if f.node != nil {
		// Its own Node exists if its VM requests a certificate again, for example after a reboot. The
		// binding of a Node decides to which Machine it belongs: the label and the provider ID of a
		// Machine are written by any client that may write Machines.
		owner, bound := v1alpha1.MachineOf(f.node)
		switch {
		case !bound:
			return wait, fmt.Sprintf("Node %q exists and is bound to no machine", node)
		case owner != v1alpha1.RefOf(f.machine):
			return deny, fmt.Sprintf("Node %q is that of machine %s", node, owner)
		case f.node.Spec.ProviderID != f.machine.Spec.ProviderID:
			return deny, fmt.Sprintf("Node %q has another VM, %q", node, f.node.Spec.ProviderID)
		}
	}
	return approve, fmt.Sprintf("Node %q is that of the machine of the bootstrap token", node)
}
