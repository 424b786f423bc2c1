package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// scope contains the result of one list of the cloud, and what a sweep has found out about it.
type scope struct {
	key     string
	turn    int                    // its place in the order of this sweep
	class   *v1alpha1.MachineClass // with which it is listed, as last read or written
	sweeper driver.Sweeper
	request driver.ScopeRequest

	stored   decide.Record // as it was read, for which seen has the time
	seen     sighting
	before   decide.Record // the same when the sweep began
	suspects []decide.Suspect
	more     int
	verdicts map[decide.Key]decide.Verdict
	unread   []decide.Suspect // those that are old enough, and had no verdict in time
	recorded bool             // its suspicions are recorded as this sweep has found them
}

// findScopes reads the MachineClasses of the namespace and their Secrets, and returns each scope
// once. Errors: scopes that could not be determined; the others are returned.
func (s *sweep) findScopes(ctx context.Context) ([]*scope, error) {
	classes, err := s.listClasses(ctx)
	if err != nil {
		return nil, err
	}
	scopes, secrets, errs := map[string]*scope{}, map[types.NamespacedName]map[string][]byte{}, []error{}
	for _, class := range classes {
		sweeper, can := s.cfg.Sweeper(class.Provider)
		if !can {
			s.addRequest(class, "")
			continue
		}
		request := driver.ScopeRequest{Class: class, ControlCluster: s.controlCluster}
		if request.Secret, err = s.credentials(ctx, class, secrets); err != nil {
			errs = append(errs, err)
			continue
		}
		if request.Secret == nil {
			s.addRequest(class, "")
			continue // there are no credentials, so that no Machine of the class can have a VM
		}
		text, err := sweeper.Scope(request)
		if err != nil {
			errs = append(errs, fmt.Errorf("determine the scope of MachineClass %s: %w", class.Name, err))
			continue
		}
		key := decide.ScopeKey(class.Provider, text)
		s.addRequest(class, key)
		if known := scopes[key]; known == nil || compareClasses(class, known.class) < 0 {
			scopes[key] = &scope{key: key, class: class, sweeper: sweeper, request: request}
		}
	}
	return sorted(scopes), errors.Join(errs...)
}

// compareClasses orders classes: those that are being deleted last, and then by name.
func compareClasses(a, b *v1alpha1.MachineClass) int {
	ends := func(class *v1alpha1.MachineClass) int {
		if class.DeletionTimestamp != nil {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(ends(a), ends(b)), cmp.Compare(a.Name, b.Name))
}

// listClasses returns the classes of the namespace that can be decoded, and records the names of
// all.
func (s *sweep) listClasses(ctx context.Context) (classes []*v1alpha1.MachineClass, err error) {
	s.classes = map[string]bool{}
	err = decode.UntilPage(ctx, "the MachineClasses", metav1.ListOptions{Limit: s.rules.page}, s.cfg.Machines.MachineClasses(s.namespace).List,
		func(page *v1alpha1.MachineClassList, undecodable []*decode.Failure) bool {
			for _, class := range undecodable {
				s.classes[class.Name] = true
			}
			for i := range page.Items {
				s.classes[page.Items[i].Name] = true
				classes = append(classes, &page.Items[i])
			}
			return false
		})
	return classes, err
}

// credentials returns the data of the Secret with the class' credentials; nil if there is none that
// the class may use. known has those that were read in this sweep.
func (s *sweep) credentials(
	ctx context.Context, class *v1alpha1.MachineClass, known map[types.NamespacedName]map[string][]byte,
) (map[string][]byte, error) {
	keys := class.SecretKeys()
	if len(keys) == 0 {
		return nil, nil
	}
	key := keys[len(keys)-1] // that of credentialsSecretRef, if there is one
	if data, read := known[key]; read {
		return data, nil
	}
	secret, err := s.readSecret(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s of MachineClass %s: %w", key, class.Name, err)
	}
	known[key] = nil
	if secret != nil {
		known[key] = secret.Data
		if known[key] == nil {
			known[key] = map[string][]byte{}
		}
	}
	return known[key], nil
}

// readSecret reads a Secret that classes of the namespace may use; nil if there is none. One of
// another namespace is read only if its metadata declare it as shared.
func (s *sweep) readSecret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	if !v1alpha1.MayExist(key) {
		return nil, nil
	}
	if key.Namespace != s.namespace {
		about, err := s.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(key.Namespace).
			Get(ctx, key.Name, metav1.GetOptions{})
		denied := apierrors.IsForbidden(err) && s.cfg.Namespace != metav1.NamespaceAll
		if denied || apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(about, s.namespace) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read its metadata: %w", err)
		}
	}
	secret, err := s.cfg.Secrets.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(secret, s.namespace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secret, nil
}
