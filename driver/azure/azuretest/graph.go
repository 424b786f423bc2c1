package azuretest

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// pathGraph is that of queries of Resource Graph, which are about no single subscription.
	pathGraph = "/providers/Microsoft.ResourceGraph/resources"
	// keysOfTags is the only column that queries can add.
	keysOfTags = "extend tagKeys = bag_keys(tags)"
)

// graph answers a query of Resource Graph with a page of its rows.
func (c *Cloud) graph(body []byte) func(http.ResponseWriter) {
	var sent struct {
		Subscriptions []string `json:"subscriptions"`
		Query         string   `json:"query"`
		Options       struct {
			SkipToken string `json:"$skipToken"`
		} `json:"options"`
	}
	if json.Unmarshal(body, &sent) != nil {
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized.")
	}
	q, known := parseQuery(sent.Query)
	if !known {
		return badRequest("InvalidQuery", "The query is invalid, or uses what this cloud does not know.")
	}
	rows, page, next := 0, []any{}, ""
	for _, key := range slices.Sorted(maps.Keys(c.resources)) {
		r := c.resources[key]
		in := slices.ContainsFunc(sent.Subscriptions, func(s string) bool {
			return strings.HasPrefix(key, "/subscriptions/"+strings.ToLower(s)+"/")
		})
		if !in || !q.selects(r) {
			continue
		}
		rows++
		if key > sent.Options.SkipToken && len(page) < c.cfg.PageSize {
			page, next = append(page, q.project(r)), key
		}
	}
	answer := map[string]any{
		"totalRecords": rows, "count": len(page), "data": page, "facets": []any{}, "resultTruncated": strconv.FormatBool(false),
	}
	if len(page) == c.cfg.PageSize {
		answer["$skipToken"] = next
	}
	return writeJSON(http.StatusOK, answer)
}

// query is one of the language of Resource Graph.
type query struct {
	where   []condition
	columns []string
}

// condition is fulfilled when one of its terms is, or with all of them when all are.
type condition struct {
	all   bool
	terms []term
}

// term is a comparison of a column.
type term struct{ column, operator, value string }

var termFormat = regexp.MustCompile(`^(\w+) (=~|has) '([^']*)'$`)

// parseQuery reads a query of the form
//
//	Resources | where … | extend tagKeys = bag_keys(tags) | project …
//
// whose conditions are terms that are all joined by "and", or all by "or".
func parseQuery(text string) (q query, known bool) {
	stages := strings.Split(text, "|")
	if !strings.EqualFold(strings.TrimSpace(stages[0]), "Resources") {
		return q, false
	}
	for _, stage := range stages[1:] {
		operator, rest, _ := strings.Cut(strings.Join(strings.Fields(stage), " "), " ")
		switch {
		case operator == "where":
			c, known := parseCondition(rest)
			if !known {
				return q, false
			}
			q.where = append(q.where, c)
		case operator+" "+rest == keysOfTags:
		case operator == "project":
			for column := range strings.SplitSeq(rest, ",") {
				q.columns = append(q.columns, strings.TrimSpace(column))
			}
		default:
			return q, false
		}
	}
	return q, len(q.columns) > 0
}

func parseCondition(text string) (c condition, known bool) {
	c.all = strings.Contains(text, " and ")
	if c.all && strings.Contains(text, " or ") {
		return c, false
	}
	separator := " or "
	if c.all {
		separator = " and "
	}
	for part := range strings.SplitSeq(text, separator) {
		found := termFormat.FindStringSubmatch(part)
		if found == nil {
			return c, false
		}
		c.terms = append(c.terms, term{found[1], found[2], found[3]})
	}
	return c, true
}

// selects reports whether the result has a row of that resource.
func (q query) selects(r *resource) bool {
	for _, c := range q.where {
		fulfilled := slices.ContainsFunc(c.terms, func(t term) bool { return t.isTrue(r) != c.all })
		if fulfilled == c.all {
			return false
		}
	}
	return true
}

func (t term) isTrue(r *resource) bool {
	values := []string{column(r, t.column)}
	if t.column == "tagKeys" {
		values = slices.Collect(maps.Keys(r.tags))
	}
	return slices.ContainsFunc(values, func(value string) bool {
		if t.operator == "has" {
			return has(value, t.value)
		}
		return strings.EqualFold(value, t.value)
	})
}

// has reports whether a text has words, in any case: what is before and after them is neither a
// letter nor a digit.
func has(text, words string) bool {
	text, words = strings.ToLower(text), strings.ToLower(words)
	inWord := func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }
	for from := 0; ; from++ {
		at := strings.Index(text[from:], words)
		if at < 0 {
			return false
		}
		from += at
		before, after := []rune(text[:from]), []rune(text[from+len(words):])
		if (len(before) == 0 || !inWord(before[len(before)-1])) && (len(after) == 0 || !inWord(after[0])) {
			return true
		}
	}
}

// project returns the row of a resource.
func (q query) project(r *resource) map[string]any {
	row := map[string]any{}
	for _, name := range q.columns {
		row[name] = column(r, name)
	}
	return row
}

// column returns a column of a resource; "" for one that it does not have.
func column(r *resource, name string) string {
	switch name {
	case "id":
		return r.id
	case "name":
		return r.id[strings.LastIndex(r.id, "/")+1:]
	case "type":
		return r.kind
	case "location":
		return r.location
	case "resourceGroup":
		return strings.ToLower(parsePath(r.id).group)
	}
	return ""
}
