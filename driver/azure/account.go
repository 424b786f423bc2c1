package azure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/marketplaceordering/armmarketplaceordering"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxAccounts is how many accounts are kept: those that were used last.
	maxAccounts = 1000
	// refreshBefore is how long before its end a token is replaced. It is more than the SDK's own 5
	// min, so that the SDK never waits.
	refreshBefore = 10 * time.Minute
)

// account is the clients with the credentials of one Secret.
type account struct {
	credentials
	tokens     *tokens
	vms        *armcompute.VirtualMachinesClient
	disks      *armcompute.DisksClient
	nics       *armnetwork.InterfacesClient
	images     *armcompute.VirtualMachineImagesClient
	agreements *armmarketplaceordering.MarketplaceAgreementsClient
}

// accounts are those that were used last, by the content of their Secrets: a token is obtained once
// for each, and a changed Secret is another account.
type accounts struct {
	open func(credentials) (*account, error)

	mu  sync.Mutex // so that an account is opened once
	all *lru.Cache // of *account by credentials
}

// of returns the account of credentials.
func (a *accounts) of(c credentials) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ := a.all.Get(c)
	if kept, ok := known.(*account); ok {
		return kept, nil
	}
	opened, err := a.open(c)
	if err == nil {
		a.all.Add(c, opened)
	}
	return opened, err
}

// drop forgets an account whose credentials the cloud rejects: its token may have been revoked.
func (a *accounts) drop(rejected *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, _ := a.all.Get(rejected.credentials); known == rejected {
		a.all.Remove(rejected.credentials)
	}
}

// openAccount creates the clients of an account. It sends no request.
func (d *Driver) openAccount(c credentials) (*account, error) {
	at, known := d.clouds[c.cloud]
	if !known {
		return nil, errors.New("providerSpec.cloudConfiguration.name: the fleet's operator has configured no such cloud")
	}
	service := at.Services[cloud.ResourceManager]
	options := arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: at, Transport: d.transport, Telemetry: policy.TelemetryOptions{ApplicationID: d.userAgent},
			// The fleet repeats a call. A retry here would hold its worker, and hide from it that the cloud
			// is throttling.
			Retry: policy.RetryOptions{MaxRetries: -1},
			// The operator decides which endpoints are used; one of the lab has no TLS.
			InsecureAllowCredentialWithHTTP: strings.HasPrefix(service.Endpoint, "http://"),
		},
		DisableRPRegistration: true, // it polls; and to register a resource provider is a decision of the subscription's owner
	}
	source, err := c.source(options.ClientOptions)
	if err != nil {
		return nil, err
	}
	a := &account{credentials: c, tokens: newTokens(source, service.Audience+"/.default", d.clock)}
	var errs [5]error
	a.vms, errs[0] = armcompute.NewVirtualMachinesClient(c.subscription, a.tokens, &options)
	a.disks, errs[1] = armcompute.NewDisksClient(c.subscription, a.tokens, &options)
	a.nics, errs[2] = armnetwork.NewInterfacesClient(c.subscription, a.tokens, &options)
	a.images, errs[3] = armcompute.NewVirtualMachineImagesClient(c.subscription, a.tokens, &options)
	a.agreements, errs[4] = armmarketplaceordering.NewMarketplaceAgreementsClient(c.subscription, a.tokens, &options)
	return a, errors.Join(errs[:]...)
}

// source returns what obtains tokens with the credentials. The authorities are the operator's, so
// that the SDK need not ask Microsoft whether they exist.
func (c credentials) source(options policy.ClientOptions) (azcore.TokenCredential, error) {
	if c.tokenFile != "" {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, ClientID: c.client, TenantID: c.tenant, TokenFilePath: c.tokenFile, DisableInstanceDiscovery: true,
		})
	}
	return azidentity.NewClientSecretCredential(c.tenant, c.client, c.secret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions: options, DisableInstanceDiscovery: true,
	})
}

// tokens are the tokens of an account. The SDK gets the current one at once: it would have all
// requests wait for the one that obtains a token, also those whose contexts have ended.
type tokens struct {
	source azcore.TokenCredential
	scope  string
	clock  clock.PassiveClock
	turn   chan struct{} // of the one that obtains a token

	mu      sync.Mutex
	current azcore.AccessToken
}

func newTokens(source azcore.TokenCredential, scope string, c clock.PassiveClock) *tokens {
	return &tokens{source: source, scope: scope, clock: c, turn: make(chan struct{}, 1)}
}

// GetToken returns the current token. It is azcore.TokenCredential's.
func (t *tokens) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.Token == "" {
		return azcore.AccessToken{}, errors.New("no token was obtained")
	}
	return t.current, nil
}

// renew obtains a token, unless the current one lasts. Errors: those of the source, and the end of
// the context.
func (t *tokens) renew(ctx context.Context) error {
	if t.lasts() {
		return ctx.Err()
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.turn }()
	if t.lasts() {
		return ctx.Err()
	}
	token, err := t.source.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{t.scope}})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = token
	return nil
}

// lasts reports whether the current token is valid for longer than a call takes.
func (t *tokens) lasts() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current.Token != "" && t.current.ExpiresOn.Sub(t.clock.Now()) > refreshBefore
}
