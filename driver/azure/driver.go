package azure

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

const (
	// Provider is the name in MachineClass.provider.
	Provider = "Azure"
	// MetricsProvider is the label of the driver's metrics, as Machine Controller Manager has it.
	MetricsProvider = "azure"
	// TokenDirectory is where Gardener mounts the tokens of workload identity.
	TokenDirectory = "/var/run/secrets/gardener.cloud/workload-identity" //nolint:gosec // a folder
)

// Config configures a Driver. The zero value works.
type Config struct {
	// Clouds are the endpoints of the clouds that a provider spec can name: AzurePublic,
	// AzureGovernment and AzureChina. nil means those of the SDK. Requests and credentials are sent to
	// no other endpoint.
	Clouds map[string]cloud.Configuration
	// TokenDirectory has all files with tokens that a Secret may name; "" means TokenDirectory.
	TokenDirectory string
	// Transport creates the connections; nil means httpclient.Transport().
	Transport http.RoundTripper
	// Wrap, if set, wraps the transport, as rest.Config.Wrap does for Kubernetes: a fence, or the
	// counting of requests by Service.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Tracer starts a span for each request; nil means none.
	Tracer trace.Tracer
	// UserAgent names the caller, in up to 24 characters.
	UserAgent string
	// Rates are the limits of a subscription; zero means DefaultRates.
	Rates Rates
	// Share returns the part of the machines that the replica owns for which a call is sent, which is
	// its part of a subscription's limits: 0 to
	// 1. It gets the context of the call. nil means 1.
	Share func(ctx context.Context) float64
	// Clock is the time; nil means the real one.
	Clock clock.PassiveClock
}

// Driver is the driver of Azure. It keeps clients and tokens of accounts, what is left of the
// limits of subscriptions, and plans of marketplace images: nothing that another replica needs to
// know.
type Driver struct {
	clouds    map[string]cloud.Configuration
	tokenDir  string
	clock     clock.PassiveClock
	transport *transport
	userAgent string
	accounts  *accounts
	images    *cache.LRUExpireCache // marketImage by imageKey
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// Validate returns an error for endpoints that are no URLs; all fields are optional.
func (c Config) Validate() error {
	_, err := hostsOf(c.Clouds)
	return err
}

// New returns a Driver. It sends no request. Errors: those of Config.Validate.
func New(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Driver{clouds: maps.Clone(cfg.Clouds), tokenDir: cfg.TokenDirectory, clock: cfg.Clock, userAgent: cfg.UserAgent}
	if d.clouds == nil {
		d.clouds = map[string]cloud.Configuration{
			cloudPublic: cloud.AzurePublic, cloudGovernment: cloud.AzureGovernment, cloudChina: cloud.AzureChina,
		}
	}
	if d.tokenDir == "" {
		d.tokenDir = TokenDirectory
	}
	if d.clock == nil {
		d.clock = clock.RealClock{}
	}
	d.images = cache.NewLRUExpireCacheWithClock(maxImages, d.clock)
	hosts, err := hostsOf(d.clouds)
	if err != nil {
		return nil, err
	}
	limits := budgets{clock: d.clock, rates: cfg.Rates, share: cfg.Share, all: map[budgetKey]*budget{}}
	if limits.rates == (Rates{}) {
		limits.rates = DefaultRates()
	}
	if limits.share == nil {
		limits.share = func(context.Context) float64 { return 1 }
	}
	connections, tracer := cfg.Transport, cfg.Tracer
	if connections == nil {
		connections = httpclient.Transport()
	}
	if cfg.Wrap != nil {
		connections = cfg.Wrap(connections)
	}
	if tracer == nil {
		tracer = noop.NewTracerProvider().Tracer("")
	}
	d.transport = &transport{client: httpclient.New(connections), hosts: hosts, budgets: &limits, tracer: tracer}
	d.accounts = &accounts{open: d.openAccount, all: lru.New(maxAccounts)}
	return d, nil
}

// hostsOf returns the servers of clouds, as in hostOf.
func hostsOf(clouds map[string]cloud.Configuration) (map[string]bool, error) {
	hosts := map[string]bool{}
	for name, at := range clouds {
		for _, text := range []string{at.ActiveDirectoryAuthorityHost, at.Services[cloud.ResourceManager].Endpoint} {
			u, err := url.Parse(text)
			if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
				return nil, fmt.Errorf("cloud %s: the endpoint %q is no URL of a server; expected https://host", name, text)
			}
			hosts[hostOf(u)] = true
		}
	}
	return hosts, nil
}

// session is one call of the driver with the account of its Secret.
type session struct {
	*account
	driver *Driver
	op     driver.Op
	at     place
	// noGroup is the error of a read in a resource group that does not exist; nil while there was
	// none.
	noGroup error
}

// begin returns the session of a call. It sends no request. Errors: InvalidArgument for credentials
// that cannot work.
func (d *Driver) begin(op driver.Op, secret map[string][]byte, spec []byte) (*session, error) {
	at := placeOf(spec)
	parsed, err := parseSecret(secret, at.cloud, d.tokenDir)
	var own *account
	if err == nil {
		own, err = d.accounts.of(parsed)
	}
	if err != nil {
		return nil, driver.Errorf(op, driver.InvalidArgument, "%w", err)
	}
	return &session{account: own, driver: d, op: op, at: at}, nil
}

// send sends a request with the SDK, and returns the driver's error for one of the SDK.
func send[T any](ctx context.Context, s *session, request func(context.Context) (T, error)) (T, error) {
	err := s.tokens.renew(ctx)
	var answer T
	if err == nil {
		answer, err = request(ctx)
	}
	if err == nil {
		return answer, nil
	}
	var none T
	failure := toError(ctx, s.op, s.driver.clock.Now(), err)
	if failure.Code == driver.Unauthenticated {
		s.driver.accounts.drop(s.account)
	}
	return none, failure
}

// id returns the ID of a resource in the resource group of the class.
func (s *session) id(kind, name string) resourceID {
	return resourceID{s.subscription, s.at.resourceGroup, kind, name}
}

// invalid returns an error for a call that cannot work.
func (s *session) invalid(format string, args ...any) *driver.Error {
	return driver.Errorf(s.op, driver.InvalidArgument, format, args...)
}

// needsGroup returns an error unless the resource group of the class is known.
func (s *session) needsGroup() error {
	if !isName(s.at.resourceGroup) {
		return s.invalid("providerSpec.resourceGroup is missing or invalid, so that the machine's VM cannot be found; set it")
	}
	return nil
}
