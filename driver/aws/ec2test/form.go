package ec2test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// values returns the values of name.1, name.2 and so on.
func values(form url.Values, name string) (all []string) {
	for i := 1; form.Has(name + "." + strconv.Itoa(i)); i++ {
		all = append(all, form.Get(name+"."+strconv.Itoa(i)))
	}
	return all
}

// elements returns the forms of name.1, name.2 and so on, without that prefix.
func elements(form url.Values, name string) (all []url.Values) {
	for i := 1; ; i++ {
		prefix := name + "." + strconv.Itoa(i) + "."
		element := url.Values{}
		for key, value := range form {
			if rest, ok := strings.CutPrefix(key, prefix); ok {
				element[rest] = value
			}
		}
		if len(element) == 0 {
			return all
		}
		all = append(all, element)
	}
}

// tagsOf returns the tags that a request has for resources of a type.
func tagsOf(form url.Values, resource string) map[string]string {
	tags := map[string]string{}
	for _, specification := range elements(form, "TagSpecification") {
		if specification.Get("ResourceType") == resource {
			for _, tag := range elements(specification, "Tag") {
				tags[tag.Get("Key")] = tag.Get("Value")
			}
		}
	}
	return tags
}

// filters contains the filters of a request: all of them, and one of the values of each.
type filters []url.Values

// matches reports whether a resource with tags and a state meets the filters.
func (f filters) matches(tags map[string]string, state string) (bool, *refusal) {
	for _, one := range f {
		name := one.Get("Name")
		var has bool
		isValue := func(text string) bool {
			return slices.ContainsFunc(values(one, "Value"), func(pattern string) bool {
				matched, err := path.Match(strings.NewReplacer("[", `\[`, "/", "\x00").Replace(pattern), strings.ReplaceAll(text, "/", "\x00"))
				return matched && err == nil
			})
		}
		switch key, isTag := strings.CutPrefix(name, "tag:"); {
		case isTag:
			value, exists := tags[key]
			has = exists && isValue(value)
		case name == "tag-key":
			for key := range tags {
				has = has || isValue(key)
			}
		case name == "instance-state-name" || name == "status":
			has = isValue(state)
		default:
			return false, refuse(http.StatusBadRequest, "InvalidParameterValue", "The filter '%s' is invalid", name)
		}
		if !has {
			return false, nil
		}
	}
	return true, nil
}

const tokenPrefix = "after:"

// page returns the items of a page, by their keys in order, and the token of the next page.
func (c *Cloud) page(form url.Values, keys []string) (page []string, next string, refused *refusal) {
	size := len(keys)
	if text := form.Get("MaxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 5 || n > 1000 {
			return nil, "", refuse(http.StatusBadRequest, "InvalidParameterValue",
				"Value ( %s ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", text)
		}
		size = n
		if c.settings.PageSize > 0 {
			size = min(size, c.settings.PageSize)
		}
	}
	if token := form.Get("NextToken"); token != "" {
		text, err := base64.StdEncoding.DecodeString(token)
		after, ok := strings.CutPrefix(string(text), tokenPrefix)
		if err != nil || !ok {
			return nil, "", refuse(http.StatusBadRequest, "InvalidNextToken", "The token '%s' is invalid", token)
		}
		at, found := slices.BinarySearch(keys, after)
		if found {
			at++
		}
		keys = keys[at:]
	}
	if len(keys) <= size {
		return keys, "", nil
	}
	return keys[:size], base64.StdEncoding.EncodeToString(fmt.Append(nil, tokenPrefix, keys[size-1])), nil
}
