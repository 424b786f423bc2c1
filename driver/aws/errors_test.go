package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

func TestCodesOfTheCloud(t *testing.T) {
	for want, codes := range map[driver.Code][]string{
		driver.ResourceExhausted: {
			"InsufficientCapacity", "InsufficientAddressCapacity", "InsufficientInstanceCapacity", "InsufficientVolumeCapacity",
			"InstanceLimitExceeded", "VcpuLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "RouteLimitExceeded", "Unsupported",
			"MaxSpotInstanceCountExceeded", "InsufficientFreeAddressesInSubnet", "NetworkInterfaceLimitExceeded",
		},
		driver.InvalidArgument: {
			"InvalidParameterValue", "InvalidParameterCombination", "InvalidAMIID.NotFound", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound",
			"InvalidKeyPair.NotFound", "InvalidInstanceID.Malformed", "MissingParameter", "ValidationError", "MalformedQueryString",
			"InvalidNextToken",
		},
		driver.NotFound:      {"InvalidInstanceID.NotFound", "InvalidNetworkInterfaceID.NotFound", "InvalidVolume.NotFound"},
		driver.AlreadyExists: {"IdempotentParameterMismatch"},
		driver.Aborted:       {"IdempotentInstanceTerminated", "IncorrectInstanceState", "InvalidNetworkInterface.InUse", "VolumeInUse"},
		driver.Unauthenticated: {
			"AuthFailure", "InvalidClientTokenId", "ExpiredToken", "RequestExpired", "SignatureDoesNotMatch", "InvalidIdentityToken",
		},
		driver.PermissionDenied:   {"UnauthorizedOperation", "AccessDenied", "OptInRequired"},
		driver.FailedPrecondition: {"OperationNotPermitted", "PendingVerification"},
		driver.Unavailable:        {"RequestLimitExceeded", "Throttling", "EC2ThrottledException", "Unavailable", "ServiceUnavailable"},
		driver.Internal:           {"InternalError", "InternalFailure"},
		driver.Unknown:            {"SomethingNew", ""},
	} {
		for _, code := range codes {
			if got := codeOf(code, http.StatusBadRequest); got != want {
				t.Errorf("%s: %v, want %v", code, got, want)
			}
		}
	}
	for status, want := range map[int]driver.Code{
		401: driver.Unauthenticated, 403: driver.PermissionDenied, 404: driver.Unknown, 429: driver.Unavailable, 500: driver.Internal,
		503: driver.Unavailable, 504: driver.DeadlineExceeded,
	} {
		if got := codeOf("SomethingNew", status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestErrorsOfTheSDK(t *testing.T) {
	refused := func(code, message string, header http.Header) error {
		return &smithy.OperationError{ServiceID: "EC2", OperationName: "RunInstances", Err: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusServiceUnavailable, Header: header}},
			Err:      &smithy.GenericAPIError{Code: code, Message: message},
		}}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelLate()
	for name, c := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of one row
		err     error
		want    driver.Code
		after   time.Duration
		message string
	}{
		"throttled": {
			t.Context(), refused("RequestLimitExceeded", "Request limit exceeded.", http.Header{"Retry-After": {"7"}}), driver.Unavailable,
			7 * time.Second, "throttled, to be repeated after 7s: RequestLimitExceeded: Request limit exceeded.",
		},
		"throttled for long": {
			t.Context(), refused("RequestLimitExceeded", "", http.Header{"Retry-After": {"1000000000"}}), driver.Unavailable, driver.MaxRetryAfter,
			"RequestLimitExceeded",
		},
		"throttled for no time": {
			t.Context(), refused("RequestLimitExceeded", "", http.Header{"Retry-After": {"soon"}}), driver.Unavailable, 0, "RequestLimitExceeded",
		},
		"not authorized": {
			t.Context(), refused("UnauthorizedOperation",
				"You are not authorized to perform this operation. Encoded authorization failure message: "+strings.Repeat("x", 5000), nil),
			driver.PermissionDenied, 0, "You are not authorized to perform this operation.",
		},
		"too large": {
			t.Context(), fmt.Errorf("sent: %w", &httpclient.LimitError{What: "bytes", Limit: 1}), driver.Unknown, 0, "was not read",
		},
		"redirected":    {t.Context(), fmt.Errorf("sent: %w", &httpclient.RedirectError{Status: 307}), driver.Unknown, 0, "redirect"},
		"not the cloud": {t.Context(), fmt.Errorf("sent: %w", &strangeError{status: 503}), driver.Unavailable, 0, "not the cloud"},
		"not an answer": {
			t.Context(), fmt.Errorf("sent: %w", &strangeError{status: 200, why: "it is empty"}), driver.Unknown, 0, "it is empty",
		},
		"not decoded": {
			t.Context(), fmt.Errorf("sent: %w", &smithy.DeserializationError{Err: errors.New("leaked"), Snapshot: []byte("leaked")}), driver.Unknown,
			0, "cannot be read",
		},
		"no token": {
			t.Context(), fmt.Errorf("sent: %w", &tokenError{errors.New("no such file")}), driver.Unauthenticated, 0, "no such file",
		},
		"cancelled": {cancelled, errors.New("x"), driver.Canceled, 0, "did not answer"},
		"too late":  {late, errors.New("x"), driver.DeadlineExceeded, 0, "did not answer"},
		"connection reset": {t.Context(), fmt.Errorf("operation error EC2: %w", &url.Error{
			Op: "Post", URL: "https://ec2", Err: errors.New("reset"),
		}), driver.Unavailable, 0, `did not answer: Post "https://ec2": reset`},
	} {
		got := errorOf(c.ctx, driver.OpCreate, time.Time{}, c.err)
		if got.Code != c.want || got.Op != driver.OpCreate || got.RetryAfter != c.after || !strings.Contains(got.Message(), c.message) ||
			strings.Contains(got.Message(), "leaked") || len(got.Message()) > 300 {
			t.Errorf("%s: %v, %v after %v; want %v with %q after %v", name, got.Code, got.Message(), got.RetryAfter, c.want, c.message, c.after)
		}
	}
}

// The SDK reads what is not an answer of the cloud as an empty list. It never gets there.
func TestAnswersAreChecked(t *testing.T) {
	const empty = `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId><reservationSet/></DescribeInstancesResponse>`
	for name, c := range map[string]struct {
		status    int
		body      string
		isStrange bool
	}{
		"an empty list":      {200, empty, false},
		"with a declaration": {200, "<?xml version=\"1.0\"?>\n" + empty + "\n", false},
		"with items": {
			200, strings.Replace(empty, "<reservationSet/>", "<reservationSet>\n<item><x>1</x></item>\n</reservationSet>", 1), false,
		},
		"nothing":               {200, "", true},
		"no XML":                {200, "{}", true},
		"a page of HTML":        {200, "<html><body>hello</body></html>", true},
		"another answer":        {200, strings.ReplaceAll(empty, "DescribeInstancesResponse", "DescribeVolumesResponse"), true},
		"without the list":      {200, strings.Replace(empty, "<reservationSet/>", "", 1), true},
		"a text for a list":     {200, strings.Replace(empty, "<reservationSet/>", "<reservationSet>none</reservationSet>", 1), true},
		"other items":           {200, strings.Replace(empty, "<reservationSet/>", "<reservationSet><member/></reservationSet>", 1), true},
		"the list is elsewhere": {200, strings.Replace(empty, "<reservationSet/>", "<a><reservationSet/></a>", 1), true},
		"cut":                   {200, empty[:len(empty)-10], true},
		"two roots":             {200, empty + empty, true},
		"too deep": {
			200, strings.Replace(empty, "<reservationSet/>", "<reservationSet/>"+strings.Repeat("<a>", 50)+strings.Repeat("</a>", 50), 1), true,
		},
		"a refusal":              {400, "<Response><Errors><Error><Code>X</Code></Error></Errors></Response>", false},
		"a refusal of STS":       {403, "<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>", false},
		"a refusal that is HTML": {404, "<html/>", true},
		"a list as a refusal":    {404, empty, true},
	} {
		err := check("DescribeInstances", httpclient.Answer{Status: c.status, Body: []byte(c.body)}, 1000)
		strange, isStrange := errors.AsType[*strangeError](err)
		if isStrange != c.isStrange || (err == nil) == isStrange || isStrange && strange.status != c.status {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := strings.Replace(empty, "<reservationSet/>", "<reservationSet>"+strings.Repeat("<item/>", 1000)+"</reservationSet>", 1)
	if _, ok := errors.AsType[*httpclient.LimitError](check("DescribeInstances",
		httpclient.Answer{Status: 200, Body: []byte(many)}, 1000)); !ok {
		t.Error("an answer with more elements than allowed is passed on")
	}
}
