package azuretest

import "testing"

func TestQueriesOfResourceGraph(t *testing.T) {
	r := &resource{
		id: "/subscriptions/s/resourceGroups/Shoot--A/providers/Microsoft.Compute/disks/D", kind: kindDisk, location: "here",
		tags: map[string]string{"kubernetes.io-role-node": "1", "x": "2"},
	}
	for text, want := range map[string]bool{
		`Resources | project name`: true,
		"resources\n| where type =~ 'microsoft.Compute/disks' or type =~ 'a'\n| project type, name":                 true,
		`Resources | where type =~ 'a' or type =~ 'b' | project name`:                                               false,
		`Resources | where resourceGroup =~ 'shoot--a' and name =~ 'd' | project name`:                              true,
		`Resources | where resourceGroup =~ 'shoot--a' and name =~ 'e' | project name`:                              false,
		`Resources | where resourceGroup =~ 'shoot--a' | where location =~ 'there' | project name`:                  false,
		`Resources | extend tagKeys = bag_keys(tags) | where tagKeys has 'kubernetes.io-role' | project name`:       true,
		`Resources | extend tagKeys = bag_keys(tags) | where tagKeys has 'kubernetes.io-rol' | project name`:        false,
		`Resources | extend tagKeys = bag_keys(tags) | where tagKeys has 'X' and tagKeys has 'role' | project name`: true,
	} {
		q, known := parseQuery(text)
		if !known || q.selects(r) != want {
			t.Errorf("%s: known=%t, selects=%t; want true and %t", text, known, q.selects(r), want)
		}
	}
	for _, text := range []string{
		``, `Resources`, `Containers | project name`, `Resources | limit 1 | project name`, `Resources | where name == 'a' | project name`,
		`Resources | where name =~ 'a' or name =~ 'b' and name =~ 'c' | project name`, `Resources | extend a = 1 | project name`,
	} {
		if _, known := parseQuery(text); known {
			t.Errorf("%q is accepted", text)
		}
	}
	q, _ := parseQuery("Resources | project id, name, type, location, resourceGroup, other")
	want := map[string]string{"id": r.id, "name": "D", "type": kindDisk, "location": "here", "resourceGroup": "shoot--a", "other": ""}
	for name, value := range q.project(r) {
		if value != want[name] {
			t.Errorf("%s is %v, want %s", name, value, want[name])
		}
	}
}
