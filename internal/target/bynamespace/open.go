package bynamespace

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/connection"
)

// Open is that of target.Resolver. It reads the Secrets, and identifies the cluster by a separate
// connection, which watches nothing: the caller needs some reads, now and then, of a cluster that
// mostly has its users in another replica.
func (t *Targets) Open(ctx context.Context, namespace string) (*target.Cluster, func(), error) {
	cluster, release, err := t.openForReads(ctx, namespace)
	if err != nil {
		return nil, nil, &target.UnavailableError{Namespace: namespace, Reason: bounded.Text(err.Error(), bounded.Message)}
	}
	return cluster, release, nil
}

func (t *Targets) openForReads(ctx context.Context, namespace string) (*target.Cluster, func(), error) {
	a, err := t.readNow(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	conn, err := connection.New(t.cfg.Policy, a, t.cfg.Clock)
	if err != nil {
		return nil, nil, err
	}
	budget := t.cfg.Budgets.Open(a.Cluster(), func() {})
	release := sync.OnceFunc(func() {
		budget.Close()
		conn.Close()
	})
	link, err := t.cfg.Connect(namespace, conn.Config(), budget.Wrap)
	if err == nil {
		link.Cluster.Name = namespace
		err = t.identify(ctx, namespace, link.Cluster)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return link.Cluster, release, nil
}

// readNow returns what the Secrets of a namespace say now.
func (t *Targets) readNow(ctx context.Context, namespace string) (access.Access, error) {
	var found [2]*corev1.Secret
	for i, by := range []selector{t.cfg.Select.main(), t.cfg.Select.token()} {
		if by == (selector{}) {
			continue // no Secret with a token is configured
		}
		options := metav1.ListOptions{FieldSelector: by.field(), LabelSelector: by.labels, Limit: secretsPage}
		err := decode.UntilPage(ctx, by.String(), options, t.cfg.Secrets.Secrets(namespace).List,
			func(page *corev1.SecretList, _ []*decode.Failure) bool {
				for j := range page.Items {
					found[i] = newer(found[i], &page.Items[j])
				}
				return false
			})
		if err != nil {
			return access.Access{}, fmt.Errorf("%s cannot be read: %w", by, err)
		}
	}
	return t.accessOf(namespace, t.cfg.Select.main(), found[0], found[1])
}

// longestUID is how many bytes the UID of a Namespace has at most, which is recorded.
const longestUID = 64

// identify returns an error unless a cluster answers, and is the one that the namespace had first.
func (t *Targets) identify(ctx context.Context, namespace string, cluster *target.Cluster) error {
	is, err := cluster.Client.CoreV1().Namespaces().Get(target.Once(ctx), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Namespace %s to identify the cluster: %w", metav1.NamespaceSystem, err)
	}
	if is.UID == "" || len(is.UID) > longestUID {
		return fmt.Errorf("expected Namespace %s with a UID of at most %d bytes, got one of %d", metav1.NamespaceSystem, longestUID, len(is.UID))
	}
	if err := t.cfg.Identify(ctx, namespace, is.UID); err != nil {
		return &otherClusterError{err}
	}
	return nil
}
