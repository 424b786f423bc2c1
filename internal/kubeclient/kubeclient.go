package kubeclient

import (
	"errors"
	"net/http"

	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface has the clients of one cluster.
//
//nolint:interfacebloat // one for each group
type Interface interface {
	AppsV1() appsv1.AppsV1Interface
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	EventsV1() eventsv1.EventsV1Interface
	PolicyV1() policyv1.PolicyV1Interface
	StorageV1() storagev1.StorageV1Interface
}

type clients struct {
	apps           *appsv1.AppsV1Client
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
	events         *eventsv1.EventsV1Client
	policy         *policyv1.PolicyV1Client
	storage        *storagev1.StorageV1Client
}

// New returns the clients of a cluster. Errors: an invalid configuration.
func New(config *rest.Config) (Interface, error) {
	shared := rest.CopyConfig(config)
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if shared.RateLimiter == nil && shared.QPS > 0 {
		if shared.Burst <= 0 {
			return nil, errors.New("the configuration of a client has a QPS: expected a Burst above 0, too")
		}
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	connections, err := rest.HTTPClientFor(shared)
	if err != nil {
		return nil, err
	}
	c := &clients{}
	return c, errors.Join(
		set(&c.apps, appsv1.NewForConfigAndClient, shared, connections),
		set(&c.authentication, authenticationv1.NewForConfigAndClient, shared, connections),
		set(&c.authorization, authorizationv1.NewForConfigAndClient, shared, connections),
		set(&c.coordination, coordinationv1.NewForConfigAndClient, shared, connections),
		set(&c.core, corev1.NewForConfigAndClient, shared, connections),
		set(&c.events, eventsv1.NewForConfigAndClient, shared, connections),
		set(&c.policy, policyv1.NewForConfigAndClient, shared, connections),
		set(&c.storage, storagev1.NewForConfigAndClient, shared, connections),
	)
}

// set sets a client of a group.
func set[T any](
	client **T, create func(*rest.Config, *http.Client) (*T, error), config *rest.Config, connections *http.Client,
) (err error) {
	*client, err = create(config, connections)
	return err
}

func (c *clients) AppsV1() appsv1.AppsV1Interface { return c.apps }

func (c *clients) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}

func (c *clients) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }

func (c *clients) CoordinationV1() coordinationv1.CoordinationV1Interface { return c.coordination }
func (c *clients) CoreV1() corev1.CoreV1Interface                         { return c.core }
func (c *clients) EventsV1() eventsv1.EventsV1Interface                   { return c.events }
func (c *clients) PolicyV1() policyv1.PolicyV1Interface                   { return c.policy }
func (c *clients) StorageV1() storagev1.StorageV1Interface                { return c.storage }
