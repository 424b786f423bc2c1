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

// part is the content of an answer to an operation: a list of items, or another element.
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
	c := newChecked(operation, answer.Status, elements)
	for decoder := xml.NewDecoder(bytes.NewReader(answer.Body)); ; {
		token, err := decoder.Token()
		switch t := token.(type) {
		case xml.StartElement:
			err = c.start(t.Name.Local)
		case xml.EndElement:
			c.names = c.names[:len(c.names)-1]
		case xml.CharData:
			err = c.text(t)
		case nil:
			if errors.Is(err, io.EOF) {
				return c.end()
			}
			return c.strange("it is no XML from byte %d on", decoder.InputOffset())
		}
		if err != nil {
			return err
		}
	}
}

// checked is an answer of which a part was read.
type checked struct {
	status   int
	root     string // the element that it has to be
	orRoot   string // another one that it may be
	elements int    // how many it may have
	expected part
	known    bool // it has to have the expected part

	names   []string // of the elements that are open
	hasPart bool
	count   int // of elements
}

func newChecked(operation string, status, elements int) *checked {
	c := &checked{status: status, elements: elements}
	if status != http.StatusOK {
		c.root, c.orRoot = "Response", "ErrorResponse"
		return c
	}
	c.root, c.orRoot = operation+"Response", operation+"Response"
	c.expected, c.known = partOf(operation)
	return c
}

func (c *checked) strange(format string, args ...any) error {
	return &strangeError{status: c.status, why: fmt.Sprintf(format, args...)}
}

// inPart reports whether the next token is directly in the expected part.
func (c *checked) inPart() bool {
	return c.known && len(c.names) == 2 && c.names[1] == c.expected.name
}

// start checks the beginning of an element.
func (c *checked) start(name string) error {
	c.count++
	switch {
	case c.count > c.elements:
		return &httpclient.LimitError{What: "elements", Limit: int64(c.elements)}
	case len(c.names) == maxDepth:
		return c.strange("its elements are nested deeper than %d", maxDepth)
	case len(c.names) == 0 && (c.count > 1 || name != c.root && name != c.orRoot):
		return c.strange("it is not a %s", c.root)
	case c.inPart() && c.expected.isList && name != "item":
		return c.strange("its %s has other elements than items", c.expected.name)
	}
	c.names = append(c.names, name)
	c.hasPart = c.hasPart || c.inPart()
	return nil
}

// text checks a text between tags.
func (c *checked) text(of xml.CharData) error {
	if c.inPart() && c.expected.isList && len(bytes.TrimSpace(of)) > 0 {
		return c.strange("its %s is no list", c.expected.name)
	}
	return nil
}

// end checks that nothing is missing.
func (c *checked) end() error {
	switch {
	case c.count == 0:
		return c.strange("it is empty")
	case c.known && !c.hasPart:
		return c.strange("it has no %s", c.expected.name)
	}
	return nil
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
