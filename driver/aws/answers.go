package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/aws/smithy-go/middleware"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// maxDepth is how deep the elements of an answer are nested at most.
const maxDepth = 32

// answers sends the requests of the SDK, and passes on only answers that the cloud can have given:
// of bounded size, whole, and with the part that the operation requires. The SDK reads a page of a
// proxy as an empty list, which would hide VMs.
type answers struct{ client *httpclient.Client }

// strangeError is an answer that the cloud cannot have given.
type strangeError struct {
	status int
	why    string
}

// Error describes what is wrong, without any text of the answer.
func (e *strangeError) Error() string {
	if e.status != http.StatusOK {
		return fmt.Sprintf("a server that is not the cloud answered %d %s", e.status, http.StatusText(e.status))
	}
	return "the cloud's answer cannot be read: " + e.why
}

// Do sends a request. Errors: those of httpclient.Client, a *httpclient.LimitError for too many
// elements, and a *strangeError.
func (a answers) Do(req *http.Request) (*http.Response, error) {
	operation := middleware.GetOperationName(req.Context())
	limits := httpclient.One()
	if strings.HasPrefix(operation, "Describe") {
		limits = httpclient.Page()
	}
	elements := limits.Values
	limits.Values = math.MaxInt // of JSON
	var resp *http.Response
	err := a.client.Do(req, limits, func(answer httpclient.Answer) error {
		if err := check(operation, answer, elements); err != nil {
			return err
		}
		resp = answer.Response(req) //nolint:bodyclose // it is in memory
		return nil
	})
	return resp, err
}

// part is what an answer to an operation has: a list of items, or another element.
type part struct {
	name   string
	isList bool
}

// partOf returns the part that an answer to an operation has.
func partOf(operation string) (part, bool) {
	p, known := map[string]part{
		"RunInstances": {"instancesSet", true}, "TerminateInstances": {"instancesSet", true}, "DescribeInstances": {"reservationSet", true},
		"DescribeImages": {"imagesSet", true}, "DescribeNetworkInterfaces": {"networkInterfaceSet", true}, "DescribeVolumes": {"volumeSet", true},
		"DeleteNetworkInterface": {"return", false}, "DeleteVolume": {"return", false}, "ModifyNetworkInterfaceAttribute": {"return", false},
		"AssignIpv6Addresses": {"networkInterfaceId", false}, "AssumeRoleWithWebIdentity": {"AssumeRoleWithWebIdentityResult", false},
	}[operation]
	return p, known
}

// check returns an error unless an answer is one of the cloud to an operation.
func check(operation string, answer httpclient.Answer, elements int) error {
	strange := func(format string, args ...any) error {
		return &strangeError{status: answer.Status, why: fmt.Sprintf(format, args...)}
	}
	expected, known := partOf(operation)
	roots := []string{operation + "Response"}
	if answer.Status != http.StatusOK {
		roots, known = []string{"Response", "ErrorResponse"}, false
	}
	var names []string // of the elements that are open
	hasPart, count := false, 0
	for decoder := xml.NewDecoder(bytes.NewReader(answer.Body)); ; {
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF) && count == 0:
			return strange("it is empty")
		case errors.Is(err, io.EOF) && known && !hasPart:
			return strange("it has no %s", expected.name)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return strange("it is no XML from byte %d on", decoder.InputOffset())
		}
		inPart := known && len(names) == 2 && names[1] == expected.name
		switch t := token.(type) {
		case xml.StartElement:
			count++
			name := t.Name.Local
			switch {
			case count > elements:
				return &httpclient.LimitError{What: "elements", Limit: int64(elements)}
			case len(names) == maxDepth:
				return strange("its elements are nested deeper than %d", maxDepth)
			case len(names) == 0 && (count > 1 || name != roots[0] && name != roots[len(roots)-1]):
				return strange("it is not a %s", roots[0])
			case inPart && expected.isList && name != "item":
				return strange("its %s has other elements than items", expected.name)
			}
			names = append(names, name)
			hasPart = hasPart || known && len(names) == 2 && name == expected.name
		case xml.EndElement:
			names = names[:len(names)-1]
		case xml.CharData:
			if inPart && expected.isList && len(bytes.TrimSpace(t)) > 0 {
				return strange("its %s is no list", expected.name)
			}
		}
	}
}

// Service returns the operation of the cloud's API that a request is about, for metrics, such as
// run_instances, and other for one that the driver does not use.
func Service(r *http.Request) string {
	operation := middleware.GetOperationName(r.Context())
	if _, known := partOf(operation); !known {
		return "other"
	}
	var name strings.Builder
	for i, letter := range operation {
		if i > 0 && 'A' <= letter && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToLower(name.String())
}
