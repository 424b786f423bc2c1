package autoscaler

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/certificates"
)

func TestIdentityOfACertificate(t *testing.T) {
	for _, tc := range []struct {
		name, commonName string
		uris             []string
		want             identity
	}{
		{name: "common name", commonName: "system:serviceaccount:n:a", want: identity{"n", "a"}},
		{name: "URI", uris: []string{"spiffe://cluster.local/ns/n/sa/a"}, want: identity{"n", "a"}},
		{name: "both", commonName: "system:serviceaccount:n:a", uris: []string{"spiffe://x/ns/n/sa/a"}, want: identity{"n", "a"}},
		{name: "URI, and a name for people", commonName: "a name", uris: []string{"spiffe://x/ns/n/sa/a"}, want: identity{"n", "a"}},
		{name: "two names", commonName: "system:serviceaccount:n:a", uris: []string{"spiffe://cluster.local/ns/n/sa/b"}},
		{name: "two URIs", uris: []string{"spiffe://x/ns/n/sa/a", "spiffe://x/ns/m/sa/a"}},
		{name: "a URI of another form", commonName: "system:serviceaccount:n:a", uris: []string{"https://example.org/ns/n/sa/a"}},
		{name: "a URI with more", uris: []string{"spiffe://x/ns/n/sa/a/b"}},
		{name: "a URI without a domain", uris: []string{"spiffe:///ns/n/sa/a"}},
		{name: "a URI with an encoded slash", uris: []string{"spiffe://x/ns/n%2Fm/sa/a"}},
		{name: "no name", commonName: "autoscaler"},
		{name: "empty"},
		{name: "no namespace", commonName: "system:serviceaccount::a"},
		{name: "no account", commonName: "system:serviceaccount:n:"},
		{name: "only a namespace", commonName: "system:serviceaccount:n"},
		{name: "another user", commonName: "system:admin"},
		{name: "a path", commonName: "system:serviceaccount:../n:a"},
		{name: "a line", commonName: "system:serviceaccount:n:a\nb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			certificate := &x509.Certificate{}
			certificate.Subject.CommonName = tc.commonName
			for _, uri := range tc.uris {
				certificate.URIs = append(certificate.URIs, uriOf(t, uri))
			}
			got, err := identityOf(certificate)
			if got != tc.want || (err == nil) != (tc.want != identity{}) {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestClientsThatAreRefused(t *testing.T) {
	f := newFleet(t, pool("pool", 1)...)
	connect := f.replica()
	named := func(name string) *tls.Certificate {
		return certificates.New(t, f.authority, certificates.Named(name)).Certificate()
	}
	for _, tc := range []struct {
		name        string
		certificate *tls.Certificate
		want        codes.Code
	}{
		{"allowed", f.certificateOf("n"), codes.OK},
		{"by its URI", certificates.New(t, f.authority, func(c *x509.Certificate) {
			c.URIs = []*url.URL{uriOf(t, "spiffe://x/ns/n/sa/autoscaler")}
		}).Certificate(), codes.OK},
		{"without a certificate", nil, codes.Unavailable},
		{"of another authority", certificates.New(t, certificates.New(t, nil)).Certificate(), codes.Unavailable},
		{"expired", certificates.New(t, f.authority, func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}).Certificate(), codes.Unavailable},
		{"for a server", certificates.New(t, f.authority, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}).Certificate(), codes.Unavailable},
		{"without an identity", named("someone"), codes.Unauthenticated},
		{"without the right", named("system:serviceaccount:n:other"), codes.PermissionDenied},
		{"of a namespace that is not served", named("system:serviceaccount:unserved:autoscaler"), codes.FailedPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := connect(tc.certificate).NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{})
			wantCode(t, tc.name, err, tc.want)
		})
	}
}

// TestAccessIsReviewedEachMinute: and stays as it is while the API server does not answer, for ten
// minutes.
func TestAccessIsReviewedEachMinute(t *testing.T) {
	f := newFleet(t, pool("pool", 1)...)
	c := f.client("n")
	check := func(when string, want codes.Code, reviews int64) {
		t.Helper()
		_, err := c.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{})
		wantCode(t, when, err, want)
		if got := f.reviewed.Load(); got != reviews {
			t.Errorf("%s: %d reviews, want %d", when, got, reviews)
		}
	}
	later := func(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }
	f.reviewsFail.Store(true)
	check("not known", codes.Unavailable, 1)
	f.reviewsFail.Store(false)
	check("allowed", codes.OK, 2)
	f.revoked.Store(true)
	later(reviewFresh - time.Second)
	check("still valid", codes.OK, 2)
	f.reviewsFail.Store(true)
	later(time.Second)
	check("no answer", codes.OK, 3)
	later(reviewStale)
	check("no answer for long", codes.Unavailable, 4)
	f.reviewsFail.Store(false)
	check("revoked", codes.PermissionDenied, 5)
	check("revoked, again", codes.PermissionDenied, 5)
}
