package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// targetsAtOnce is how many target clusters are asked at the same time, and targetTimeout how long
// each may take.
const (
	targetsAtOnce = 16
	targetTimeout = 10 * time.Second
)

// targetSecrets names the Secrets that have the access to target clusters.
type targetSecrets struct{ name, token string }

func newTargetsCommand(p *program) *cobra.Command {
	var secrets targetSecrets
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "Show the target clusters: whether they answer, when credentials expire, and their Nodes",
		Long: help(`
Show the target clusters. In a landscape these are the clusters that Secrets of namespaces name: each is asked for its Nodes with the
credentials of its Secret. Without such Secrets it is the target cluster of this command. What the fleet itself reports of a cluster
is shown, too: it may be reachable from one network only.`,
			rightToRead, "get secrets, those of the target clusters; without it they are not asked",
			"list nodes of the target cluster, without landscapes"),
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			p.allNamespaces = p.allNamespaces || *p.flags.Namespace == ""
			r, namespace, err := p.readerIn()
			if err != nil {
				return err
			}
			s, err := r.Read(cmd.Context(), p.now(), observe.Scope{Namespace: namespace, Machines: true})
			if err != nil {
				return err
			}
			v := view.TargetsOf(s, p.readTargets(cmd.Context(), r, &s, secrets))
			v.Missing = s.Missing
			objects := objectsOf(v.Targets, func(t view.Target) view.Object { return view.Object{Kind: view.KindNamespace, Name: t.Namespace} })
			return p.print(v, objects, func(style text.Style) string { return text.Targets(v, style) })
		}),
	}
	p.outputFlag(cmd)
	p.namespacesFlag(cmd)
	cmd.Flags().StringVar(&secrets.name, "target-secret", "machine-controller-fleet-target",
		"name of the Secrets, as --target-secret of the fleet")
	cmd.Flags().StringVar(&secrets.token, "target-token-secret", "",
		"name of the Secrets with the tokens, as --target-token-secret of the fleet")
	return cmd
}

// readTargets reads the target clusters of the namespaces that have Secrets, or else the one of the
// command.
func (p *program) readTargets(ctx context.Context, r observe.Reader, s *view.Snapshot, secrets targetSecrets) []view.TargetRead {
	var namespaces []string
	for _, d := range s.Deployments {
		namespaces = append(namespaces, d.Namespace)
	}
	for _, m := range s.Machines {
		namespaces = append(namespaces, m.Namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	reads := make([]view.TargetRead, len(namespaces))
	isTarget := make([]bool, len(namespaces))
	forbidden := make([]bool, len(namespaces))
	var wait sync.WaitGroup
	turns := make(chan struct{}, targetsAtOnce)
	for i, namespace := range namespaces {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			read, err := readTarget(ctx, r, namespace, secrets)
			forbidden[i] = apierrors.IsForbidden(err)
			reads[i], isTarget[i] = read, err == nil || !apierrors.IsNotFound(err) && !forbidden[i]
			reads[i].Err = cmp.Or(reads[i].Err, err)
		})
	}
	wait.Wait()
	if slices.Contains(forbidden, true) {
		s.Missing = append(s.Missing, view.Missing{
			What: "Target clusters of namespaces", Why: "the API server refuses the request",
			Right: "get secrets " + secrets.name,
		})
	}
	var all []view.TargetRead
	for i, read := range reads {
		if isTarget[i] {
			all = append(all, read)
		}
	}
	if len(all) > 0 || r.Target == nil {
		return all
	}
	return []view.TargetRead{p.readOnlyTarget(ctx, r)}
}

// readOnlyTarget reads the target cluster of the command, with the credentials of its user.
func (p *program) readOnlyTarget(ctx context.Context, r observe.Reader) view.TargetRead {
	read := view.TargetRead{Asked: true}
	if _, config, err := p.connect(p); err == nil && config != nil {
		read.Server = config.Host
	}
	read.Nodes, read.Err = nodesOf(ctx, r.Target)
	read.Err = observe.Explain(read.Err, observe.Right{Verb: "list", Resource: "nodes", Cluster: "target"})
	return read
}

// readTarget reads the target cluster of a namespace. Errors: its Secret cannot be read.
func readTarget(ctx context.Context, r observe.Reader, namespace string, secrets targetSecrets) (view.TargetRead, error) {
	read := view.TargetRead{Namespace: namespace}
	secret, err := r.Control.CoreV1().Secrets(namespace).Get(ctx, secrets.name, metav1.GetOptions{})
	if err != nil {
		return read, err
	}
	var token *access.Secret
	if secrets.token != "" {
		with, err := r.Control.CoreV1().Secrets(namespace).Get(ctx, secrets.token, metav1.GetOptions{})
		if err != nil {
			return read, err
		}
		token = &access.Secret{Name: with.Name, Data: with.Data}
	}
	a, err := access.Policy{}.Read(namespace, access.Secret{Name: secret.Name, Data: secret.Data}, token)
	if err != nil {
		return read, err
	}
	read.Server, read.Asked = a.Server, true
	read.Credentials, read.Expires = credentialsOf(a)
	config := quick(&rest.Config{
		Host: a.Server, BearerToken: a.Token, Timeout: targetTimeout,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: a.ServerName, CAData: []byte(a.CA), CertData: []byte(a.ClientCert), KeyData: []byte(a.ClientKey),
		},
	})
	clients, err := kubeclient.New(config)
	if err != nil {
		return read, err
	}
	read.Nodes, read.Err = nodesOf(ctx, clients)
	return read, nil
}

func nodesOf(ctx context.Context, clients kubeclient.Interface) (nodes []*corev1.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	err = decode.EachPage(ctx, "Nodes", clients.CoreV1().Nodes().List, func(page *corev1.NodeList) {
		for i := range page.Items {
			nodes = append(nodes, &page.Items[i])
		}
	})
	return nodes, err
}

// credentialsOf returns the kind of the credentials, and when they expire; zero if they do not, or
// it cannot be read from them.
func credentialsOf(a access.Access) (kind string, expires time.Time) {
	if a.Token != "" {
		return "token", expiryOfToken(a.Token)
	}
	block, _ := pem.Decode([]byte(a.ClientCert))
	if block == nil {
		return "certificate", time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "certificate", time.Time{}
	}
	return "certificate", certificate.NotAfter
}

// expiryOfToken returns the expiry that a token has as a JSON Web Token; zero if it is none.
func expiryOfToken(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var of struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(claims, &of) != nil || of.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(of.Exp, 0)
}
