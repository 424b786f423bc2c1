package simulated

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// lie is a VM as no correct cloud describes it.
func lie(change func(*cloudapi.Instance)) cloudapi.Instance {
	v := vm(cloudapi.StateRunning)
	change(&v)
	return v
}

// An answer of a cloud is used only if it can describe the requested VM, and no other answer is
// shown.
func TestFalseAnswersAreRejected(t *testing.T) {
	const id = "simulated:///r/z/i-1"
	one := map[string]any{
		"an array":                   "[]",
		"a string":                   `"i-1"`,
		"null":                       "null",
		"nothing":                    "{}",
		"an ID that is a number":     `{"id": 1}`,
		"an ID that is an object":    `{"id": {"a": "leaked"}, "name": "a"}`,
		"tags that are a list":       `{"id": "i-1", "providerID": "` + id + `", "name": "a", "tags": ["leaked"]}`,
		"a time that is none":        `{"id": "i-1", "providerID": "` + id + `", "name": "a", "createdAt": "leaked"}`,
		"a page of HTML":             "<html>leaked</html>",
		"the answer is cut":          `{"id": "i-1", "name": "leaked`,
		"deeper than anything":       strings.Repeat("[", 5000),
		"more values than a VM has":  `{"console": ["leaked"` + strings.Repeat(`,""`, 50_000) + "]}",
		"larger than a VM can be":    `{"id": "` + strings.Repeat("leaked", 1<<18) + `"}`,
		"a name and nothing else":    `{"name": "a"}`,
		"another name":               lie(func(v *cloudapi.Instance) { v.Name = "b" }),
		"no name":                    lie(func(v *cloudapi.Instance) { v.Name = "" }),
		"no ID":                      lie(func(v *cloudapi.Instance) { v.ID = "" }),
		"no provider ID":             lie(func(v *cloudapi.Instance) { v.ProviderID = "" }),
		"the ID of a folder":         lie(func(v *cloudapi.Instance) { v.ID, v.ProviderID = "..", "simulated:///r/z/.." }),
		"an ID with a path":          lie(func(v *cloudapi.Instance) { v.ID, v.ProviderID = "i-1/x", id+"/x" }),
		"an ID with a query":         lie(func(v *cloudapi.Instance) { v.ID, v.ProviderID = "i-1?x", id+"?x" }),
		"an ID with a line":          lie(func(v *cloudapi.Instance) { v.ID, v.ProviderID = "i-1\n", id+"\n" }),
		"an ID with an escape":       lie(func(v *cloudapi.Instance) { v.ID, v.ProviderID = "i-1\x1b[2J", id+"\x1b[2J" }),
		"an ID of two VMs":           lie(func(v *cloudapi.Instance) { v.ID = "i-2" }),
		"a provider ID of a foreign": lie(func(v *cloudapi.Instance) { v.ProviderID = "aws:///r/i-1" }),
	}
	for name, body := range one {
		for op, call := range map[driver.Op]func(*Driver) error{
			driver.OpCreate: func(d *Driver) error {
				_, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target("")})
				return err
			},
			driver.OpInitialize: func(d *Driver) error {
				_, err := d.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: withID(target(`{"sourceDestCheck": true}`), id)})
				return err
			},
			driver.OpDelete: func(d *Driver) error {
				resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: withID(target(""), id)})
				if resp.Gone {
					t.Errorf("%s: the VM is gone", name)
				}
				return err
			},
			driver.OpStatus: func(d *Driver) error {
				_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: withID(target(""), id)})
				return err
			},
		} {
			d, cloud := against(t, answer{http.StatusOK, nil, body})
			err := call(d)
			if op == driver.OpDelete && strings.HasSuffix(name, " name") { // a delete by ID does not depend on names
				continue
			}
			wantUnknown(t, name+" to "+string(op), err)
			if len(cloud.requests) != 1 {
				t.Errorf("%s: %d requests: %v", name, len(cloud.requests), cloud.requests)
			}
		}
	}
	lists := map[string]any{
		"items that are an object": `{"items": {"leaked": {}}}`,
		"items that are strings":   `{"items": ["leaked"]}`,
		"an empty VM":              `{"items": [{}]}`,
		"a VM without its tag":     cloudapi.InstanceList{Items: []cloudapi.Instance{lie(func(v *cloudapi.Instance) { v.Tags = nil })}},
		"a VM of others": cloudapi.InstanceList{
			Items: []cloudapi.Instance{lie(func(v *cloudapi.Instance) { v.Tags = map[string]string{TagMachineUID: "b", TagCluster: "b"} })},
		},
		"a VM without ID": cloudapi.InstanceList{Items: []cloudapi.Instance{lie(func(v *cloudapi.Instance) { v.ID = "" })}},
		"more VMs than are on pages": cloudapi.InstanceList{
			Items: slices.Repeat([]cloudapi.Instance{vm(cloudapi.StateRunning)}, cloudapi.MaxPageSize+1),
		},
		"more values than on pages": `{"items": [{}` + strings.Repeat(",{}", 200_000) + "]}",
	}
	for name, body := range lists {
		for op, call := range map[driver.Op]func(*Driver) error{
			driver.OpStatus: func(d *Driver) error {
				_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target("")})
				return err
			},
			driver.OpDelete: func(d *Driver) error {
				_, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target("")})
				return err
			},
			driver.OpList: func(d *Driver) error {
				resp, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: target("").Class})
				if len(resp.Machines) > 0 {
					t.Errorf("%s: listed %v", name, resp.Machines)
				}
				return err
			},
		} {
			d, cloud := against(t, answer{http.StatusOK, nil, body})
			wantUnknown(t, name+" to "+string(op), call(d))
			if len(cloud.requests) != 1 {
				t.Errorf("%s: %d requests: %v", name, len(cloud.requests), cloud.requests)
			}
		}
	}
}

// wantUnknown fails the test unless an error leaves open whether there is a VM, and does not
// contain the body.
func wantUnknown(t *testing.T, what string, err error) {
	t.Helper()
	if code := driver.CodeOf(err); code != driver.Internal && code != driver.Unknown {
		t.Errorf("%s: %v, want Internal or Unknown", what, err)
	} else if text := err.Error(); strings.Contains(text, "leaked") || strings.ContainsAny(text, "\n\x1b") || len(text) > 2*driver.MaxMessage {
		t.Errorf("%s: the error shows %.200q", what, text)
	}
}

// A list whose pages refer to each other is read up to a limit.
func TestListWithCircularPagesIsBounded(t *testing.T) {
	var pages []answer
	for i := range maxPages + 1 {
		pages = append(pages, answer{http.StatusOK, nil, cloudapi.InstanceList{NextPageToken: fmt.Sprint(i % 2)}})
	}
	d, cloud := against(t, pages...)
	if _, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: target("").Class}); driver.CodeOf(err) != driver.Internal ||
		len(cloud.requests) != maxPages {
		t.Errorf("%v after %d requests, want Internal after %d", err, len(cloud.requests), maxPages)
	}
}

func TestRedirectsAndLargeErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer  answer
		want    driver.Code
		message string
	}{
		"moved": {
			answer{http.StatusMovedPermanently, map[string]string{"Location": "http://169.254.169.254/"}, ""}, driver.Unknown, "redirect",
		},
		"moved with body": {
			answer{http.StatusTemporaryRedirect, map[string]string{"Location": "/x"}, refusal(404, cloudapi.CodeNotFound).body},
			driver.Unknown,
			"redirect",
		},
		"a long message": {
			answer{http.StatusForbidden, nil, cloudapi.ErrorBody{Code: cloudapi.CodeForbidden, Message: strings.Repeat("no\n", 100_000)}},
			driver.PermissionDenied, "bytes in all",
		},
		"a message without end": {
			answer{http.StatusForbidden, nil, cloudapi.ErrorBody{Code: cloudapi.CodeForbidden, Message: strings.Repeat("no", 1<<20)}},
			driver.Unknown, "was not read",
		},
		"a code that is text": {
			answer{http.StatusForbidden, nil, cloudapi.ErrorBody{Code: cloudapi.ErrorCode(strings.Repeat("no\r", 1<<10)), Message: "x"}},
			driver.Unknown, "bytes in all",
		},
	} {
		d, cloud := against(t, c.answer)
		_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: withID(target(""), "simulated:///r/z/i-1")})
		if driver.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.message) || strings.ContainsAny(err.Error(), "\n\r") ||
			strings.Contains(err.Error(), "169.254") {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.message)
		}
		if len(driver.MessageOf(err)) > driver.MaxMessage || len(cloud.requests) != 1 {
			t.Errorf("%s: a message of %d bytes after %d requests", name, len(driver.MessageOf(err)), len(cloud.requests))
		}
	}
}

// ofUID is a page of VMs with the UID of one machine.
func ofUID(count int, next string) answer {
	page := cloudapi.InstanceList{NextPageToken: next}
	for i := range count {
		page.Items = append(page.Items, lie(func(v *cloudapi.Instance) {
			v.ID, v.ProviderID = fmt.Sprint("i-", i), fmt.Sprint("simulated:///r/z/i-", i)
		}))
	}
	return answer{http.StatusOK, nil, page}
}

// Only a few of the VMs that a cloud reports for one machine are read.
func TestEndlessListOfOneMachineIsBounded(t *testing.T) {
	looks := map[driver.Op]func(*Driver) error{
		driver.OpStatus: func(d *Driver) error {
			_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target("")})
			return err
		},
		driver.OpInitialize: func(d *Driver) error {
			_, err := d.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: target(`{"sourceDestCheck": true}`)})
			return err
		},
	}
	empty := make([]answer, 1000)
	for i := range empty {
		empty[i] = ofUID(0, fmt.Sprint(i))
	}
	for op, call := range looks {
		for name, c := range map[string]struct {
			pages    []answer
			want     driver.Code
			requests int
		}{
			"a full page, and more":         {[]answer{ofUID(driver.MaxOwned, "a"), ofUID(driver.MaxOwned, "b")}, driver.OutOfRange, 1},
			"one on a page, and more":       {[]answer{ofUID(1, "a"), ofUID(1, "b"), ofUID(1, "c")}, driver.OutOfRange, 2},
			"more on a page than asked for": {[]answer{ofUID(driver.MaxOwned+1, "a"), ofUID(1, "")}, driver.Internal, 1},
			"more values than a few VMs have": {
				[]answer{{http.StatusOK, nil, `{"items": [{"console": [""` + strings.Repeat(`,""`, 20_000) + "]}]}"}}, driver.Unknown, 1,
			},
			"nothing, and more": {empty, driver.Internal, driver.MaxOwned},
		} {
			d, cloud := against(t, c.pages...)
			if err := call(d); driver.CodeOf(err) != c.want || len(cloud.requests) != c.requests {
				t.Errorf("%s, %s: %v after %d requests, want %v after %d", op, name, err, len(cloud.requests), c.want, c.requests)
			}
		}
	}
	ended, cleared := answer{http.StatusOK, nil, vm(cloudapi.StateTerminated)}, answer{http.StatusOK, nil, cloudapi.LeftoverList{}}
	for name, c := range map[string]struct {
		answers  []answer
		gone     bool
		requests int
	}{
		"a page, and more":       {[]answer{ofUID(2, "a"), withVM(ended, "i-0"), withVM(ended, "i-1"), ofUID(1, "")}, false, 3},
		"a page":                 {[]answer{ofUID(2, ""), withVM(ended, "i-0"), withVM(ended, "i-1"), cleared}, true, 4},
		"an empty page, and one": {[]answer{ofUID(0, "a"), ofUID(1, ""), withVM(ended, "i-0"), cleared}, true, 4},
	} {
		d, cloud := against(t, c.answers...)
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target("")})
		if err != nil || resp.Gone != c.gone || len(cloud.requests) != c.requests {
			t.Errorf("delete, %s: gone=%t, %v after %d requests; want %t after %d", name, resp.Gone, err, len(cloud.requests), c.gone, c.requests)
		}
	}
	d, cloud := against(t, empty...)
	if resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target("")}); resp.Gone ||
		driver.CodeOf(err) != driver.Internal {
		t.Errorf("delete, nothing and more: gone=%t, %v after %d requests, want Internal", resp.Gone, err, len(cloud.requests))
	}
}

// withVM is an answer about another VM.
func withVM(a answer, id string) answer {
	described, _ := a.body.(cloudapi.Instance)
	described.ID, described.ProviderID = id, "simulated:///r/z/"+id
	a.body = described
	return a
}
