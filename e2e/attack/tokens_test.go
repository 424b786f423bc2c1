//go:build e2e

package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// tokensOf lists the bootstrap tokens of a Machine.
func (a *tenant) tokensOf(ctx context.Context, machine types.UID) (found []corev1.Secret, err error) {
	list, err := a.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken),
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(s corev1.Secret) bool {
		return s.Annotations[v1alpha1.AnnotationMachineUID] != string(machine)
	}), nil
}

// tokenWithoutEnd requests a token that lasts for a hundred years, and removes the finalizer of its
// machine, so that no controller would delete the token.
func tokenWithoutEnd(a *tenant) {
	const endless = 876_000 * time.Hour
	a.class("working", a.cloud.endpoint("working"))
	m := a.machine("endless", "working", func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: endless.String()}
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: endless}}
	})
	var token corev1.Secret
	a.eventually("the machine has a VM and a token", func(ctx context.Context) error {
		if now, err := a.get(ctx, m.Name); err != nil || now.Spec.ProviderID == "" {
			return fmt.Errorf("it has no VM: %w", err)
		}
		found, err := a.tokensOf(ctx, m.UID)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("it has %d tokens", len(found))
		}
		if err == nil {
			token = found[0]
		}
		return err
	})
	expiry, err := time.Parse(time.RFC3339, string(token.Data["expiration"]))
	a.must(err)
	if life := expiry.Sub(token.CreationTimestamp.Time); life > time.Hour+time.Minute {
		a.Errorf("the token lives for %s", life)
	}
	usages := slices.DeleteFunc(slices.Sorted(maps.Keys(token.Data)), func(key string) bool { return !strings.HasPrefix(key, "usage-") })
	if !slices.Equal(usages, []string{"usage-bootstrap-authentication"}) || token.Data["auth-extra-groups"] != nil {
		a.Errorf("the token may be used for %q, with groups %q", usages, token.Data["auth-extra-groups"])
	}
	a.remove(m.Name)
	_, err = a.api.Machines(a.namespace).Patch(a.ctx, m.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) { // the fleet may have been quicker
		a.must(err)
	}
	a.eventually("the token is gone", func(ctx context.Context) error {
		found, err := a.tokensOf(ctx, m.UID)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there are %d", len(found))
		}
		return err
	})
}

// tokenWithoutPlaceholder has user data without a place for a token.
func tokenWithoutPlaceholder(a *tenant) {
	a.class("working", a.cloud.endpoint("working"))
	_, err := a.secrets.Patch(a.ctx, "working", types.MergePatchType, []byte(`{"stringData":{"userData":"#!/bin/sh"}}`), metav1.PatchOptions{})
	a.must(err)
	m := a.machine("plain", "working")
	a.eventually("the machine has a VM", func(ctx context.Context) error {
		if now, err := a.get(ctx, m.Name); err != nil || now.Spec.ProviderID == "" {
			return fmt.Errorf("it has none: %w", err)
		}
		return nil
	})
	if found, err := a.tokensOf(a.ctx, m.UID); err != nil || len(found) > 0 {
		a.Errorf("the machine has %d tokens, %v", len(found), err)
	}
}

// tokenForAnotherNode is root on a VM, reads the bootstrap token there, and requests certificates
// of Nodes.
func tokenForAnotherNode(a *tenant) {
	a.class("working", a.cloud.endpoint("working"))
	for _, name := range []string{"own", controlPlane} {
		a.machine(name, "working")
		a.eventually("the VM of machine "+name+" is recorded", func(ctx context.Context) error {
			m, err := a.get(ctx, name)
			if err == nil && nodeOf(m) == "" {
				err = errors.New("it has no Node")
			}
			return err
		})
	}
	vm := a.withToken("own")
	other := nodeOf(&a.victim.machines[0])
	if _, err := vm.CoreV1().Secrets(metav1.NamespaceSystem).List(a.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		a.Errorf("the list of Secrets: %v", err)
	}
	// A machine can have the name of a Node without a machine, like those of control planes.
	unmanaged := a.requestFor(a.withToken(controlPlane), controlPlane)
	a.decided(a.requestFor(vm, other), certificatesv1.CertificateDenied, other, "own")
	a.decided(a.requestFor(vm, "own"), certificatesv1.CertificateApproved, "own")
	now, err := a.lab.Target.CertificatesV1().CertificateSigningRequests().Get(a.ctx, unmanaged, metav1.GetOptions{})
	a.must(err)
	if len(now.Status.Conditions) > 0 || len(now.Status.Certificate) > 0 {
		a.Errorf("the request for Node %s: %+v", controlPlane, now.Status)
	}
}

// withToken returns the access by the bootstrap token of a VM.
func (a *tenant) withToken(machine string) kubernetes.Interface {
	a.Helper()
	for _, request := range a.cloud.requestsFor("working") {
		var requested cloudapi.CreateInstanceRequest
		if err := json.Unmarshal(request.body, &requested); err != nil || requested.Name != machine {
			continue // it is no create, or that of another VM
		}
		words := bytes.Fields(requested.UserData)
		at := slices.IndexFunc(words, func(word []byte) bool { return string(word) == "--token" })
		if at < 0 {
			a.Fatalf("the user data of machine %s has no token: %s", machine, requested.UserData)
		}
		config := rest.AnonymousClientConfig(a.lab.TargetConfig)
		config.BearerToken = string(words[at+1])
		client, err := kubernetes.NewForConfig(config)
		a.must(err)
		return client
	}
	a.Fatalf("no VM was created for machine %s", machine)
	return nil
}

// requestFor requests the certificate of a Node, and returns the name of the request.
func (a *tenant) requestFor(client kubernetes.Interface, node string) (request string) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	encoded, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	a.must(err)
	api := client.CertificatesV1().CertificateSigningRequests()
	csr, err := api.Create(a.ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: a.namespace + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: encoded}),
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	a.must(err)
	return csr.Name
}

// decided waits for the approver's decision on a request.
func (a *tenant) decided(request string, want certificatesv1.RequestConditionType, words ...string) {
	a.Helper()
	a.eventually(fmt.Sprintf("the request %s is %s", request, want), func(ctx context.Context) error {
		now, err := a.lab.Target.CertificatesV1().CertificateSigningRequests().Get(ctx, request, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			missing := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
			if c.Type == want && !missing {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", now.Status.Conditions)
	})
}
