package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

const (
	// maxAccounts is how many clients are kept, one for each identity and region.
	maxAccounts = 1024
	// expiryWindow is how long before their end temporary credentials are replaced.
	expiryWindow = 5 * time.Minute
	// maxTokenFile is how many bytes a token file has at most.
	maxTokenFile = 64 << 10
	// sessionName names the fleet in the log of the cloud.
	sessionName = "machine-controller-fleet"
)

// accountKey identifies a client by the content of a Secret, so that a Secret with new content gets
// a new client.
type accountKey struct {
	identity [32]byte
	region   string
}

// account sends requests under one identity in one region.
type account struct {
	ec2    *ec2.Client
	region string
	key    accountKey
	driver *Driver
}

// account returns the client for a class and a Secret. Errors: InvalidArgument.
func (d *Driver) account(op driver.Op, class *v1alpha1.MachineClass, secret map[string][]byte) (*account, error) {
	wrong := func(err error) (*account, error) { return nil, driver.Errorf(op, driver.InvalidArgument, "%w", err) }
	region, err := regionOf(class)
	if err != nil {
		return wrong(err)
	}
	id, err := parseSecret(secret)
	if err != nil {
		return wrong(err)
	}
	key := accountKey{id.hash(), region}
	known, _ := d.accounts.Get(key)
	if kept, ok := known.(*account); ok {
		return kept, nil
	}
	endpoint, err := d.endpointOf(id)
	if err != nil {
		return wrong(err)
	}
	credentials, err := d.credentials(id, region)
	if err != nil {
		return wrong(err)
	}
	a := &account{region: region, key: key, driver: d, ec2: ec2.New(ec2.Options{
		Region: region, Credentials: credentials, BaseEndpoint: endpoint, HTTPClient: d.http, Retryer: sdk.NopRetryer{}, AppID: d.userAgent,
	})}
	d.accounts.Add(key, a)
	return a, nil
}

// endpointOf returns the endpoint for an identity; nil means the public one of the region.
func (d *Driver) endpointOf(id identity) (*string, error) {
	if len(d.cfg.Endpoints) == 0 && id.endpoint == "" {
		return nil, nil
	}
	endpoint, err := d.endpoints.Choose(id.endpoint)
	if err != nil {
		return nil, fmt.Errorf("secret key %q: %w", SecretEndpoint, err)
	}
	return sdk.String(endpoint.String()), nil
}

// credentials returns the credentials of an identity. Those that are temporary are kept until
// shortly before their end.
func (d *Driver) credentials(id identity, region string) (sdk.CredentialsProvider, error) {
	if id.tokenFile == "" {
		return sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: id.accessKeyID, SecretAccessKey: id.secretAccessKey, Source: "Secret"}, nil
		}), nil
	}
	open, err := d.tokenFile(id.tokenFile)
	if err != nil {
		return nil, err
	}
	options := sts.Options{Region: region, HTTPClient: d.http, Retryer: sdk.NopRetryer{}, AppID: d.userAgent}
	if d.cfg.STSEndpoint != "" {
		options.BaseEndpoint = sdk.String(d.cfg.STSEndpoint)
	}
	source := &webIdentity{sts: sts.New(options), roleARN: id.roleARN, open: open}
	return sdk.NewCredentialsCache(source, func(o *sdk.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow }), nil
}

// tokenFile returns how a token file is opened. Only files in Config.TokenDirs are read: a tenant
// writes the path into a Secret, and must not be able to have the fleet send another file to the
// cloud.
func (d *Driver) tokenFile(path string) (open func() (io.ReadCloser, error), err error) {
	for _, dir := range d.cfg.TokenDirs {
		name, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(name) || !filepath.IsAbs(path) {
			continue
		}
		return func() (io.ReadCloser, error) {
			root, err := os.OpenRoot(dir) // which no link leaves
			if err != nil {
				return nil, err
			}
			defer root.Close()
			return root.Open(name)
		}, nil
	}
	return nil, fmt.Errorf("secret key %q: the file is in none of the folders that the flags of the driver allow; "+
		"correct its path, or ask the fleet's operator to allow its folder", SecretTokenFile)
}

// webIdentity gets temporary credentials for a role by a token.
type webIdentity struct {
	sts     *sts.Client
	roleARN string
	open    func() (io.ReadCloser, error)
}

// tokenError is a token that cannot be read.
type tokenError struct{ err error }

// Error names the file's path and not its content.
func (e *tokenError) Error() string {
	return fmt.Sprintf("the token of the workload identity cannot be read: %v", e.err)
}

// Retrieve reads the token, which is replaced from time to time, and assumes the role.
func (w *webIdentity) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	token, err := w.token()
	if err != nil {
		return sdk.Credentials{}, &tokenError{err}
	}
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	out, err := w.sts.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: sdk.String(w.roleARN), RoleSessionName: sdk.String(sessionName), WebIdentityToken: sdk.String(token),
	})
	switch {
	case err != nil:
		return sdk.Credentials{}, err
	case out.Credentials == nil || out.Credentials.AccessKeyId == nil || out.Credentials.SecretAccessKey == nil ||
		out.Credentials.Expiration == nil:
		return sdk.Credentials{}, &strangeError{status: http.StatusOK, why: "it has no temporary credentials"}
	}
	return sdk.Credentials{
		AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey,
		SessionToken: sdk.ToString(out.Credentials.SessionToken), Source: "WorkloadIdentity", CanExpire: true,
		Expires: *out.Credentials.Expiration,
	}, nil
}

func (w *webIdentity) token() (string, error) {
	file, err := w.open()
	if err != nil {
		return "", err
	}
	defer file.Close()
	token, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return "", err
	}
	if len(token) == 0 || len(token) > maxTokenFile {
		return "", errors.New("expected a file of 1 byte to 64 KiB")
	}
	return string(token), nil
}
