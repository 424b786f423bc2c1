package ec2test

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// maxBody is how many bytes a request has at most: user data of 16 KiB, encoded, and some.
const maxBody = 256 << 10

// refusal is an answer that is no success.
type refusal struct {
	code    string
	status  int
	message string
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{code: code, status: status, message: fmt.Sprintf(format, args...)}
}

// action carries out a request.
type action func(form url.Values) (answer any, refused *refusal)

// actionOf returns an action of EC2.
func (c *Cloud) actionOf(name string) (action, bool) {
	found, ok := map[string]action{
		"RunInstances": c.runInstances, "DescribeInstances": c.describeInstances, "TerminateInstances": c.terminateInstances,
		"DescribeImages": c.describeImages, "DescribeNetworkInterfaces": c.describeNetworkInterfaces, "DescribeVolumes": c.describeVolumes,
		"DeleteNetworkInterface": c.deleteNetworkInterface, "DeleteVolume": c.deleteVolume,
		"ModifyNetworkInterfaceAttribute": c.modifyNetworkInterface, "AssignIpv6Addresses": c.assignPrefixes,
	}[name]
	return found, ok
}

// assumeRole is the one action of STS. Its requests are not signed.
const assumeRole = "AssumeRoleWithWebIdentity"

// ServeHTTP answers a request.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeRefusal(w, refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "expected at most %d bytes", maxBody), 0)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/" {
		writeRefusal(w, refuse(http.StatusBadRequest, "InvalidAction", "expected a form that is posted to /"), 0)
		return
	}
	c.serve(w, r, body, form)
}

// serve answers a request with a form. It holds the lock except while it hangs.
func (c *Cloud) serve(w http.ResponseWriter, r *http.Request, body []byte, form url.Values) {
	name := form.Get("Action")
	c.mu.Lock()
	c.advance()
	c.requests = append(c.requests, name)
	isCut, after, failure := len(c.requests) == c.cutAt, c.cutAfter, c.failureOf(name, form)
	var answer any
	refused := c.admit()
	switch {
	case isCut && !after, failure.Hang && failure.Code != "":
	case failure.Code != "":
		refused = refuse(failure.Status, failure.Code, "as the test requests")
	case refused == nil:
		answer, refused = c.act(name, r, body, form)
	}
	c.mu.Unlock()
	switch {
	case isCut:
		panic(http.ErrAbortHandler)
	case failure.Hang:
		if failure.Hung != nil {
			failure.Hung()
		}
		<-r.Context().Done()
	case refused != nil:
		writeRefusal(w, refused, failure.RetryAfterSeconds)
	default:
		write(w, http.StatusOK, name+"Response", answer)
	}
}

// failureOf returns the failure that a request is to have.
func (c *Cloud) failureOf(name string, form url.Values) Failure {
	f := c.failure
	if f == nil || f.Partly || len(f.Actions) > 0 && !slices.Contains(f.Actions, name) || f.FollowingPages && form.Get("NextToken") == "" {
		return Failure{}
	}
	return *f
}

// admit refuses a request that is one too many.
func (c *Cloud) admit() *refusal {
	if c.settings.Rate == 0 {
		return nil
	}
	now := c.clock.Now()
	c.budget = min(c.settings.Burst, c.budget+now.Sub(c.budgetAt).Seconds()*c.settings.Rate)
	c.budgetAt = now
	if c.budget < 1 {
		return refuse(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
	}
	c.budget--
	return nil
}

// act authenticates and carries out a request.
func (c *Cloud) act(name string, r *http.Request, body []byte, form url.Values) (answer any, refused *refusal) {
	if name == assumeRole {
		return c.assume(form)
	}
	if refused := c.authenticate(r, body); refused != nil {
		return nil, refused
	}
	do, ok := c.actionOf(name)
	if !ok {
		return nil, refuse(http.StatusBadRequest, "InvalidAction", "The action %s is not valid for this web service.", name)
	}
	return do(form)
}

// write writes an answer in XML.
func write(w http.ResponseWriter, status int, root string, answer any) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).EncodeElement(answer, xml.StartElement{Name: xml.Name{Local: root}}) // a client that has gone
}

// writeRefusal writes an answer that is no success.
func writeRefusal(w http.ResponseWriter, refused *refusal, retryAfter int) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	write(w, refused.status, "Response", errorAnswer{Code: refused.code, Message: refused.message, RequestID: requestID})
}
